// How lines are read, and weights ordered, for processors that have no dot product of bytes (AVX2 alone).
//
// What they multiply bytes with clips sums of two products at 16 bits, and each such sum of two must be widened to 32.
// So activations are read less what leads to clipping, and products of eight inputs are added before they are widened,
// where no sum of the weights in question can leave 16 bits. What is left out is added apart: sums are exact.
#pragma once

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "memory.h"
#include "packing.h"

namespace specmt {

#ifdef SPECMT_BYTES_CLIP

// Pairs of activations below 128 do not clip, whatever the weights. So lines are read less the lowest of 128 successive
// values around their zero, within those; what the few others lie outside by, in fours of which one does, is added
// apart.
constexpr int kWithin = 127;

inline int lowest(float zero) { return std::clamp(int(zero) - 64, 0, 255 - kWithin); }

struct Beyond {
  int input;  // the first of four
  int16_t by[kInputs];
};

struct Lines {
  std::vector<uint8_t> within;
  std::vector<Beyond> beyond;  // one line's behind the other's
  std::vector<size_t> ends;    // of each line's, behind a zero

  const uint8_t* bytes() const { return within.data(); }
};

// Of each line `depth` bytes, of which the last from `inputs` on count for nothing. Until the same thread's next call.
inline const Lines& readable(const uint8_t* bytes, int lines, int depth, int inputs, int low) {
  thread_local Lines read;
  read.within.resize(std::max(read.within.size(), size_t(lines) * depth));
  read.beyond.clear();
  read.ends.assign(1, 0);
  const __m256i least = _mm256_set1_epi8(char(low)), most = _mm256_set1_epi8(kWithin);
  for (int line = 0; line < lines; ++line) {
    for (int input = 0; input < depth; input += 32) {
      const size_t place = size_t(line) * depth + input;
      const __m256i given = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes + place));
      const __m256i within = _mm256_min_epu8(_mm256_subs_epu8(given, least), most);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(&read.within[place]), within);
      const __m256i fours = _mm256_cmpeq_epi32(_mm256_add_epi8(within, least), given);
      int missed = ~_mm256_movemask_ps(_mm256_castsi256_ps(fours)) & 0xff;
      for (int first = input; missed && first < inputs; first += kInputs, missed >>= 1) {
        if (!(missed & 1)) continue;
        Beyond beyond{first, {}};
        for (int i = 0; i < kInputs; ++i)
          beyond.by[i] = int16_t(bytes[place + first - input + i] - low - read.within[place + first - input + i]);
        read.beyond.push_back(beyond);
      }
    }
    read.ends.push_back(read.beyond.size());
  }
  return read;
}

// The weights of sixteen outputs for four inputs: each 16-bit lane adds the products of two inputs.
struct Four {
  __m256i above, below;  // of each lane's weights, the sums of those above and below zero, as bytes

  explicit Four(const int8_t* weights) {
    const __m256i none = _mm256_setzero_si256(), one = _mm256_set1_epi8(1);
    __m256i sums[2][2];
    for (int half = 0; half < 2; ++half) {
      const __m256i read = _mm256_load_si256(reinterpret_cast<const __m256i*>(weights) + half);
      sums[0][half] = _mm256_maddubs_epi16(_mm256_max_epi8(read, none), one);
      sums[1][half] = _mm256_maddubs_epi16(_mm256_sub_epi8(none, _mm256_min_epi8(read, none)), one);
    }
    above = _mm256_packus_epi16(sums[0][0], sums[0][1]);
    below = _mm256_packus_epi16(sums[1][0], sums[1][1]);
  }

  // Whether the products of both add up within 16 bits, whatever the activations: 254 * 127 < 2^15.
  bool fits(const Four& other) const {
    const __m256i most = _mm256_max_epu8(_mm256_adds_epu8(above, other.above), _mm256_adds_epu8(below, other.below));
    return !_mm256_movemask_epi8(_mm256_cmpeq_epi8(most, _mm256_set1_epi8(char(255))));
  }
};

// Of a group: for each vector of outputs, which fours of inputs lie where.
struct Order {
  const uint16_t* inputs;  // the first of each four
  const uint16_t* pairs;   // so many lie first, in twos that fit
};

// Where the four that begins at `input` lies; it is among `inputs`, which are a multiple of 16.
inline int place_of_four(const uint16_t* inputs, int input) {
  const __m256i wanted = _mm256_set1_epi16(int16_t(input));
  for (int place = 0;; place += 16) {
    const __m256i read = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(inputs + place));
    const int found = _mm256_movemask_epi8(_mm256_cmpeq_epi16(read, wanted));
    if (found) return place + __builtin_ctz(unsigned(found)) / 2;
  }
}

// Brings the fours of each vector of outputs into pairs that fit.
class Pairing {
 public:
  void arrange(Arena& arena, int8_t* weights, int groups, int depth) {
    const int parts = groups * kParts, fours = depth / kInputs;
    fours_ = fours;
    inputs_ = arena.take<uint16_t>(size_t(parts) * fours);
    pairs_ = arena.take<uint16_t>(parts);
    std::vector<int8_t> given(size_t(depth) * kOutputs);
    for (int part = 0; part < parts; ++part, weights += given.size()) {
      const std::vector<int> order = pair_up(weights, part);
      std::copy_n(weights, given.size(), given.begin());
      for (int place = 0; place < fours; ++place) {
        std::copy_n(&given[size_t(order[place]) * kFour], kFour, weights + size_t(place) * kFour);
        inputs_[size_t(part) * fours + place] = uint16_t(order[place] * kInputs);
      }
    }
  }

  Order of(int group) const {
    const size_t first = size_t(group) * kParts * fours_;
    return {inputs_ + first, pairs_ + size_t(group) * kParts};
  }

 private:
  static constexpr int kFour = kInputs * kOutputs;  // bytes
  static constexpr int kTried = 64;                 // at most, of those that might fit

  std::vector<int> pair_up(const int8_t* weights, int part) {
    std::vector<Four> fours;
    for (int four = 0; four < fours_; ++four) fours.emplace_back(weights + size_t(four) * kFour);
    std::vector<int> left(fours_), order, single;
    std::iota(left.begin(), left.end(), 0);
    for (size_t at = 0; at < left.size(); ++at) {
      const auto end = left.begin() + std::min(left.size(), at + 1 + kTried);
      const auto other =
          std::find_if(left.begin() + at + 1, end, [&](int four) { return fours[left[at]].fits(fours[four]); });
      if (other == end) {
        single.push_back(left[at]);
        continue;
      }
      order.insert(order.end(), {left[at], *other});
      left.erase(other);
    }
    pairs_[part] = uint16_t(order.size() / 2);
    order.insert(order.end(), single.begin(), single.end());
    return order;
  }

  int fours_ = 0;
  uint16_t *inputs_ = nullptr, *pairs_ = nullptr;
};

// Adds to a line's sums of a group what four of its inputs lie beyond.
inline void add_beyond(const Beyond& beyond, int depth, const int8_t* weights, const Order& order,
                       Ints (&sums)[kParts]) {
  int64_t four;
  std::memcpy(&four, beyond.by, sizeof four);
  const __m256i spread = _mm256_set1_epi64x(four);
  for (int part = 0; part < kParts; ++part) {
    const int place = place_of_four(order.inputs + size_t(part) * (depth / kInputs), beyond.input);
    const int8_t* from = weights + size_t(part) * kOutputs * depth + size_t(place) * kInputs * kOutputs;
    for (int half = 0; half < 2; ++half, from += 32) {
      const __m128i* bytes = reinterpret_cast<const __m128i*>(from);
      const __m256i low = _mm256_madd_epi16(spread, _mm256_cvtepi8_epi16(_mm_load_si128(bytes)));
      const __m256i high = _mm256_madd_epi16(spread, _mm256_cvtepi8_epi16(_mm_load_si128(bytes + 1)));
      const __m256i totals = _mm256_permute4x64_epi64(_mm256_hadd_epi32(low, high), 0xd8);  // in order of outputs
      __m256i* to = reinterpret_cast<__m256i*>(&sums[part]) + half;
      _mm256_storeu_si256(to, _mm256_add_epi32(_mm256_loadu_si256(to), totals));
    }
  }
}

#else

inline int lowest(float) { return 0; }

struct Lines {
  const uint8_t* within;

  const uint8_t* bytes() const { return within; }
};

inline Lines readable(const uint8_t* bytes, int, int, int, int) { return {bytes}; }

struct Order {};

struct Pairing {
  void arrange(Arena&, int8_t*, int, int) {}
  Order of(int) const { return {}; }
};

#endif

}  // namespace specmt
