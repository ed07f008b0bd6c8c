// Products of 8-bit activations with 8-bit weights, summed exactly as integers.
//
// A matrix is packed in groups of 64 outputs; in a group, each four inputs of as many outputs as are computed at a time
// lie together, so that they are read in the order of memory. Activations are unsigned, weights signed: the operands of
// the processors' dot products. Sums are exact, hence the same for any number of lines, on any processor: `kMostInputs`
// are as many as 32 bits hold, whatever they and the correction are.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "crew.h"
#include "vectors.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AMX_INT8__) && defined(__AVX512VNNI__)
#define SPECMT_TILES  // the processor's matrix unit
#endif

namespace specmt {

constexpr int kInputs = 4;               // inputs that a dot product adds at once
constexpr int kGroup = 64;               // outputs of a group
constexpr int kParts = kGroup / kLanes;  // vectors of outputs of a group

// Of a product: outputs that are computed at a time, and at most for so many lines.
#if defined(__AVX512VNNI__)
constexpr int kOutputs = 64, kTile = 6;
#elif defined(__AVXVNNI__)
constexpr int kOutputs = 32, kTile = 3;
#elif defined(__AVX2__)
constexpr int kOutputs = 8, kTile = 4;
#else
constexpr int kOutputs = 16, kTile = 2;
#endif

#ifdef SPECMT_TILES
constexpr int kTiledLines = 16;  // at most, of a tile
constexpr int kFewestTiled = 7;  // lines; for fewer, vectors are as fast
#endif

constexpr int kAhead = 1024;  // bytes of weights that are asked for early: a product of one line waits for them

constexpr size_t kShared = 1 << 17;  // products of two numbers from which on helpers take part

constexpr int kMostInputs = 32896;  // 2^31 / (2 * 255 * 128)

inline int rounded_up(int count, int step) { return (count + step - 1) / step * step; }

struct Release {
  void operator()(void* memory) const { std::free(memory); }
};

// Memory on cache lines, zeroed.
template <class T>
std::unique_ptr<T[], Release> aligned(size_t count) {
  const size_t bytes = (count * sizeof(T) + 63) / 64 * 64;
  void* memory = std::aligned_alloc(64, std::max<size_t>(bytes, 64));
  if (!memory) throw std::bad_alloc();
  std::memset(memory, 0, bytes);
  return std::unique_ptr<T[], Release>(static_cast<T*>(memory));
}

// A matrix as it is stored: int8 rows (outputs), a scale per row; bias may be null.
struct Stored {
  const int8_t* integers = nullptr;
  const float* scales = nullptr;
  const float* bias = nullptr;
  int outputs = 0;
  int inputs = 0;
};

// How an activation becomes 8 bits: value = (integer - zero) * step.
struct Quantiser {
  float step = 1;
  float zero = 0;

  Quantiser() = default;
  Quantiser(float low, float high) {
    low = std::min(low, 0.0f);
    high = std::max(high, 0.0f);
    const float wanted = (high - low) / 255;
    if (wanted >= std::numeric_limits<float>::min()) step = wanted;
    zero = std::nearbyint(-low / step);
  }

  // Brings `count` values to 8 bits and fills up to `padded` with zeros.
  void apply(const float* from, int count, int padded, uint8_t* to) const {
    const Floats inverse = splat(1 / step), least = splat(-zero), most = splat(255 - zero);
    int i = 0;
    for (; i + kLanes <= count; i += kLanes) put(load(from + i), inverse, least, most, to + i);
    if (i < count) {
      float rest[kLanes] = {};
      std::copy(from + i, from + count, rest);
      uint8_t bytes[kLanes];
      put(load(rest), inverse, least, most, bytes);
      std::copy(bytes, bytes + (count - i), to + i);
    }
    std::fill(to + count, to + padded, 0);
  }

  void put(Floats values, Floats inverse, Floats least, Floats most, uint8_t* to) const {
    store_bytes(to, whole(larger(smaller(values * inverse, most), least)) + int(zero));
  }
};

// Weights of one or more matrices that read the same activation, one below the other.
class Product {
 public:
  Product() = default;

  // `filling`: what an output beyond the last comes to.
  Product(const std::vector<Stored>& matrices, const Quantiser& quantiser, float filling = 0) {
    if (matrices.empty()) throw std::invalid_argument("a product of no matrix");
    for (const Stored& matrix : matrices) outputs_ += matrix.outputs;
    if (matrices[0].inputs > kMostInputs) throw std::invalid_argument("a matrix of too many inputs");
    depth_ = rounded_up(matrices[0].inputs, kGroup);
    groups_ = rounded_up(outputs_, kGroup) / kGroup;
    const int padded = groups_ * kGroup;
    weights_ = aligned<int8_t>(size_t(padded) * depth_);
    scales_ = aligned<float>(padded);
    biases_ = aligned<float>(padded);
    corrections_ = aligned<int32_t>(padded);
    std::fill(biases_.get() + outputs_, biases_.get() + padded, filling);
    int output = 0;
    for (const Stored& matrix : matrices)
      for (int row = 0; row < matrix.outputs; ++row, ++output) pack(matrix, row, output, quantiser);
  }

  int padded_outputs() const { return groups_ * kGroup; }
  int depth() const { return depth_; }

  // For each of `lines` (each `depth` bytes) and each part of 16 outputs, calls finish(line, first output, values):
  // in order of outputs within a group, but for several groups at a time.
  template <class Finish>
  void run(Crew& crew, const uint8_t* activations, int lines, const Finish& finish) const {
#ifdef SPECMT_TILES
    if (lines >= kFewestTiled)
      return share(crew, lines, [&](int begin, int end) { run_tiled(activations, lines, begin, end, finish); });
#endif
    const Activation* read = readable(activations, size_t(lines) * depth_);
    share(crew, lines, [&](int begin, int end) { run_groups(read, lines, begin, end, finish); });
  }

  // The products of `lines`, `padded_outputs` floats each.
  void write(Crew& crew, const uint8_t* activations, int lines, float* to) const {
    run(crew, activations, lines,
        [&](int line, int output, Floats values) { store(to + size_t(line) * padded_outputs() + output, values); });
  }

 private:
#if defined(__AVX2__) && !defined(__AVX512VNNI__) && !defined(__AVXVNNI__)
  using Activation = int16_t;

  // Until the same thread's next call.
  static const Activation* readable(const uint8_t* activations, size_t count) {
    thread_local std::vector<Activation> wide;
    wide.resize(std::max(wide.size(), count));
    std::copy_n(activations, count, wide.data());
    return wide.data();
  }
#else
  using Activation = uint8_t;

  static const Activation* readable(const uint8_t* activations, size_t) { return activations; }
#endif

  void pack(const Stored& matrix, int row, int output, const Quantiser& quantiser) {
    const int8_t* from = matrix.integers + size_t(row) * matrix.inputs;
    int8_t* to = weights_.get() + size_t(output / kOutputs) * kOutputs * depth_ + output % kOutputs * kInputs;
    int input = 0;
    for (; input + kInputs <= matrix.inputs; input += kInputs, to += kOutputs * kInputs)
      std::memcpy(to, from + input, kInputs);
    std::copy(from + input, from + matrix.inputs, to);
    const int32_t total = std::accumulate(from, from + matrix.inputs, int32_t(0));
    scales_[output] = matrix.scales[row] * quantiser.step;
    corrections_[output] = -int32_t(quantiser.zero) * total;
    biases_[output] = matrix.bias ? matrix.bias[row] : 0;
  }

  // What is done to all groups, with the crew's help where it is much.
  template <class Work>
  void share(Crew& crew, int lines, const Work& work) const {
    if (size_t(lines) * groups_ * kGroup * depth_ < kShared) return work(0, groups_);
    crew.share(groups_, 1, work);
  }

  template <class Finish>
  void run_groups(const Activation* activations, int lines, int begin, int end, const Finish& finish) const {
    const int tiles = (lines + kTile - 1) / kTile;
    for (int group = begin; group < end; ++group)
      for (int tile = 0; tile < tiles; ++tile) {
        const int first = int(int64_t(lines) * tile / tiles), last = int(int64_t(lines) * (tile + 1) / tiles);
        run_tile(activations, first, last - first, group, finish);
      }
  }

  template <class Finish>
  void run_tile(const Activation* activations, int begin, int lines, int group, const Finish& finish) const {
    switch (lines) {
      case 1:
        return run_lines<1>(activations, begin, group, finish);
      case 2:
        return run_lines<2>(activations, begin, group, finish);
#if defined(__AVX2__)
      case 3:
        return run_lines<3>(activations, begin, group, finish);
#endif
#if defined(__AVX2__) && !defined(__AVXVNNI__)
      case 4:
        return run_lines<4>(activations, begin, group, finish);
#endif
#if defined(__AVX512VNNI__)
      case 5:
        return run_lines<5>(activations, begin, group, finish);
      case 6:
        return run_lines<6>(activations, begin, group, finish);
#endif
    }
  }

  template <int kLines, class Finish>
  void run_lines(const Activation* activations, int begin, int group, const Finish& finish) const {
    alignas(64) Ints sums[kLines][kParts];  // Clang forgets what the type says of it
    add_up<kLines>(activations + size_t(begin) * depth_, weights_.get() + size_t(group) * kGroup * depth_,
                   corrections_.get() + group * kGroup, sums);
    for (int line = 0; line < kLines; ++line) finish_line(sums[line], begin + line, group, finish);
  }

  template <class Finish>
  void finish_line(const Ints (&sums)[kParts], int line, int group, const Finish& finish) const {
    for (int part = 0; part < kParts; ++part) {
      const int output = group * kGroup + part * kLanes;
      finish(line, output, floats(sums[part]) * load(scales_.get() + output) + load(biases_.get() + output));
    }
  }

#ifdef SPECMT_TILES
  // All tiles have as many lines: the last begins early.
  template <class Finish>
  void run_tiled(const uint8_t* activations, int lines, int begin, int end, const Finish& finish) const {
    const int tiles = (lines + kTiledLines - 1) / kTiledLines, height = (lines + tiles - 1) / tiles;
    shape_tiles(height);
    alignas(64) Ints sums[kTiledLines][kParts];
    for (int group = begin; group < end; ++group)
      for (int line = 0; line < lines;) {
        const int first = std::min(line, lines - height);
        add_up_tiled(activations + size_t(first) * depth_, weights_.get() + size_t(group) * kGroup * depth_,
                     corrections_.get() + group * kGroup, sums);
        for (; line < first + height; ++line) finish_line(sums[line - first], line, group, finish);
      }
  }

  // Tiles 0 to 3 are sums of 16 outputs each, 4 has activations, the others weights.
  static void shape_tiles(int lines) {
    struct {
      uint8_t palette, start_row, reserved[14];
      uint16_t row_bytes[16];
      uint8_t rows[16];
    } shape = {};
    shape.palette = 1;
    for (int tile = 0; tile < 8; ++tile) {
      shape.row_bytes[tile] = 64;
      shape.rows[tile] = uint8_t(tile < 5 ? lines : 16);
    }
    asm volatile("" ::"m"(shape));  // all of it is read; GCC's intrinsic speaks of the first eight bytes
    _tile_loadconfig(&shape);
  }

  // Not inlined: what it reads is in memory when it is called.
  __attribute__((noinline)) void add_up_tiled(const uint8_t* activations, const int8_t* weights,
                                              const int32_t* corrections, Ints (&sums)[kTiledLines][kParts]) const {
    constexpr int kDeep = 64, kBetween = kOutputs * kInputs;  // inputs of a tile; bytes from four inputs to the next
    _tile_loadd(0, corrections, 0);                           // for all lines the same
    _tile_loadd(1, corrections + 16, 0);
    _tile_loadd(2, corrections + 32, 0);
    _tile_loadd(3, corrections + 48, 0);
    for (int input = 0; input < depth_; input += kDeep, weights += kDeep * kOutputs) {
      _tile_loadd(4, activations + input, depth_);
      _tile_loadd(5, weights, kBetween);
      _tile_dpbusd(0, 4, 5);
      _tile_loadd(6, weights + 64, kBetween);
      _tile_dpbusd(1, 4, 6);
      _tile_loadd(7, weights + 128, kBetween);
      _tile_dpbusd(2, 4, 7);
      _tile_loadd(5, weights + 192, kBetween);
      _tile_dpbusd(3, 4, 5);
    }
    _tile_stored(0, &sums[0][0], sizeof sums[0]);
    _tile_stored(1, &sums[0][1], sizeof sums[0]);
    _tile_stored(2, &sums[0][2], sizeof sums[0]);
    _tile_stored(3, &sums[0][3], sizeof sums[0]);
  }
#endif

#if defined(__AVX512VNNI__)
  // Asks for the cache's line at an address, which may lie behind the weights.
  static void fetch(const int8_t* weights) { _mm_prefetch(reinterpret_cast<const char*>(weights), _MM_HINT_T0); }
#endif

  // Not inlined: there, all sums stay in registers.
  template <int kLines>
  __attribute__((noinline)) void add_up(const Activation* activations, const int8_t* weights,
                                        const int32_t* corrections, Ints (&sums)[kLines][kParts]) const {
#if defined(__AVX512VNNI__)
    __m512i totals[kLines][kParts];
#pragma GCC unroll 8
    for (int line = 0; line < kLines; ++line)
#pragma GCC unroll 4
      for (int part = 0; part < kParts; ++part) totals[line][part] = _mm512_load_si512(corrections + part * kLanes);
    for (int input = 0; input < depth_; input += kInputs, weights += kOutputs * kInputs) {
#pragma GCC unroll 4
      for (int part = 0; part < kParts; ++part) fetch(weights + kAhead + part * 64);
      __m512i columns[kParts];
#pragma GCC unroll 4
      for (int part = 0; part < kParts; ++part) columns[part] = _mm512_load_si512(weights + part * 64);
#pragma GCC unroll 8
      for (int line = 0; line < kLines; ++line) {
        int32_t four;
        std::memcpy(&four, activations + size_t(line) * depth_ + input, sizeof four);
        const __m512i spread = _mm512_set1_epi32(four);
#pragma GCC unroll 4
        for (int part = 0; part < kParts; ++part)  // the intrinsic would have the compiler copy every total
          asm("vpdpbusd %2, %1, %0" : "+v"(totals[line][part]) : "v"(spread), "v"(columns[part]));
      }
    }
#pragma GCC unroll 8
    for (int line = 0; line < kLines; ++line)
#pragma GCC unroll 4
      for (int part = 0; part < kParts; ++part) _mm512_storeu_si512(&sums[line][part], totals[line][part]);
#elif defined(__AVXVNNI__)
    for (int half = 0; half < 2; ++half) {
      __m256i totals[kLines][kParts];
#pragma GCC unroll 4
      for (int line = 0; line < kLines; ++line)
#pragma GCC unroll 4
        for (int part = 0; part < kParts; ++part) {
          const int32_t* from = corrections + (half * kParts + part) * 8;
          totals[line][part] = _mm256_load_si256(reinterpret_cast<const __m256i*>(from));
        }
      for (int input = 0; input < depth_; input += kInputs, weights += kOutputs * kInputs) {
        __m256i spread[kLines];
#pragma GCC unroll 4
        for (int line = 0; line < kLines; ++line) {
          int32_t four;
          std::memcpy(&four, activations + size_t(line) * depth_ + input, sizeof four);
          spread[line] = _mm256_set1_epi32(four);
        }
#pragma GCC unroll 4
        for (int part = 0; part < kParts; ++part) {
          const __m256i columns = _mm256_load_si256(reinterpret_cast<const __m256i*>(weights + part * 32));
#pragma GCC unroll 4
          for (int line = 0; line < kLines; ++line)
            totals[line][part] = _mm256_dpbusd_avx_epi32(totals[line][part], spread[line], columns);
        }
      }
      __m256i* to = reinterpret_cast<__m256i*>(sums) + half * kParts;
#pragma GCC unroll 4
      for (int line = 0; line < kLines; ++line, to += 2 * kParts)
#pragma GCC unroll 4
        for (int part = 0; part < kParts; ++part) _mm256_storeu_si256(to + part, totals[line][part]);
    }
#elif defined(__AVX2__)
    // Without a dot product: in 16 bits, multiplied and added in pairs. (Multiplying bytes clips.)
    for (int eight = 0; eight < kGroup / kOutputs; ++eight) {
      __m256i pairs[kLines][2] = {};  // of four outputs each: sums over inputs 0 and 1, 2 and 3
      for (int input = 0; input < depth_; input += kInputs, weights += kOutputs * kInputs) {
        const __m256i columns[2] = {
            _mm256_cvtepi8_epi16(_mm_load_si128(reinterpret_cast<const __m128i*>(weights))),
            _mm256_cvtepi8_epi16(_mm_load_si128(reinterpret_cast<const __m128i*>(weights + 16)))};
#pragma GCC unroll 4
        for (int line = 0; line < kLines; ++line) {
          int64_t four;
          std::memcpy(&four, activations + size_t(line) * depth_ + input, sizeof four);
          const __m256i spread = _mm256_set1_epi64x(four);
#pragma GCC unroll 2
          for (int half = 0; half < 2; ++half)
            asm("vpaddd %1, %0, %0" : "+x"(pairs[line][half]) : "x"(_mm256_madd_epi16(spread, columns[half])));
        }
      }
      const __m256i correction = _mm256_load_si256(reinterpret_cast<const __m256i*>(corrections) + eight);
#pragma GCC unroll 4
      for (int line = 0; line < kLines; ++line) {
        const __m256i totals =
            _mm256_permute4x64_epi64(_mm256_hadd_epi32(pairs[line][0], pairs[line][1]), 0xd8);  // in order
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums[line]) + eight, _mm256_add_epi32(totals, correction));
      }
    }
#else
    for (int line = 0; line < kLines; ++line) std::memcpy(sums[line], corrections, sizeof sums[line]);
    for (int part = 0; part < kParts; ++part)
      for (int input = 0; input < depth_; input += kInputs, weights += kOutputs * kInputs)
        for (int line = 0; line < kLines; ++line) {
          const uint8_t* four = activations + size_t(line) * depth_ + input;
          const int8_t* from = weights;
          int32_t* totals = reinterpret_cast<int32_t*>(&sums[line][part]);
          for (int output = 0; output < kOutputs; ++output, from += kInputs)
            totals[output] += four[0] * from[0] + four[1] * from[1] + four[2] * from[2] + four[3] * from[3];
        }
#endif
  }

  int outputs_ = 0;
  int depth_ = 0;
  int groups_ = 0;
  std::unique_ptr<int8_t[], Release> weights_;
  std::unique_ptr<float[], Release> scales_;
  std::unique_ptr<float[], Release> biases_;
  std::unique_ptr<int32_t[], Release> corrections_;
};

// To be called when a thread has done what it was asked for: what it left in tiles would be kept for it.
inline void leave_tiles() {
#ifdef SPECMT_TILES
  _tile_release();
#endif
}

}  // namespace specmt
