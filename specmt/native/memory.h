// Memory for vectors: zeroed, on cache lines.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

namespace specmt {

constexpr size_t kCacheLine = 64;

template <class Count>
Count rounded_up(Count count, Count step) {
  return (count + step - 1) / step * step;
}

struct Release {
  void operator()(void* memory) const { std::free(memory); }
};

template <class T>
std::unique_ptr<T[], Release> aligned(size_t count) {
  const size_t bytes = std::max(rounded_up(count * sizeof(T), kCacheLine), kCacheLine);
  void* memory = std::aligned_alloc(kCacheLine, bytes);
  if (!memory) throw std::bad_alloc();
  std::memset(memory, 0, bytes);
  return std::unique_ptr<T[], Release>(static_cast<T*>(memory));
}

// Grown as needed, by half at least: passes grow longer little by little, and new memory is dear.
template <class T>
class Buffer {
 public:
  T* get(size_t count) {
    if (count > count_) {
      const size_t grown = std::max(count, count_ + count_ / 2);
      memory_ = aligned<T>(grown);
      count_ = grown;
    }
    return memory_.get();
  }
  T* begin() const { return memory_.get(); }

 private:
  std::unique_ptr<T[], Release> memory_;
  size_t count_ = 0;
};

// For what lives as long as the arena, and is read from one end to the other in each pass: in huge pages where the
// system grants them, because each page must be looked up, and there would be thousands of small ones.
class Arena {
 public:
  template <class T>
  T* take(size_t count) {
    const size_t bytes = rounded_up(count * sizeof(T), kCacheLine);
    if (bytes > left_) map(bytes);
    char* taken = free_;
    free_ += bytes;
    left_ -= bytes;
    return reinterpret_cast<T*>(taken);
  }

 private:
  static constexpr size_t kHugePage = size_t(1) << 21, kBlock = size_t(1) << 24;

  struct Unmap {
    size_t bytes;
    void operator()(char* memory) const { munmap(memory, bytes); }
  };

  // What is left of the block before stays unused, hence untouched.
  void map(size_t bytes) {
    const size_t block = std::max(rounded_up(bytes, kHugePage), kBlock), all = block + kHugePage;
    void* memory = mmap(nullptr, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    blocks_.emplace_back(static_cast<char*>(memory), Unmap{all});
    free_ = reinterpret_cast<char*>(rounded_up(reinterpret_cast<size_t>(memory), kHugePage));
    left_ = block;
#ifdef MADV_HUGEPAGE
    madvise(free_, block, MADV_HUGEPAGE);
#endif
  }

  std::vector<std::unique_ptr<char, Unmap>> blocks_;
  char* free_ = nullptr;
  size_t left_ = 0;
};

}  // namespace specmt
