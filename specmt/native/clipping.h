// How lines are read, and weights ordered, for what each build's processors multiply bytes with.
//
// Where activations must be signed as weights are (Arm), lines are read less 128. What follows is of processors that
// have no dot product of bytes (AVX2 alone).
//
// What they multiply bytes with clips sums of two products at 16 bits, and each such sum of two must be widened to 32.
// So activations are read less what leads to clipping, and products of eight inputs are added before they are widened,
// where no sum of the weights in question can leave 16 bits. What is left out is added apart: sums are exact. Behind a
// ReLU most activations are zero, and what they would be multiplied with is passed over.
//
// Weights of 4 bits need no more than the last: nothing that is added of their products clips.
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

constexpr double kFew = 0.3;  // of a product's fours: if fewer are active, the others are passed over

inline int lowest(float zero, bool halved) { return halved ? 0 : std::clamp(int(zero) - 64, 0, 255 - kWithin); }

struct Beyond {
  int four;
  int16_t sign;         // all lie above, 1, or below, -1
  uint8_t by[kInputs];  // at most 128
};

// The fours of a line that are not all zero: first an even number of which no activation is above 64, so that the
// products of any two add up within 16 bits.
struct Active {
  const uint16_t *small, *others, *end;
};

struct Lines {
  const uint8_t* bytes;  // given, or:
  std::vector<uint8_t> within;
  std::vector<Beyond> beyond;  // one line's behind the other's
  std::vector<size_t> ends;    // of each line's, behind a zero
  std::vector<uint16_t> active;
  std::vector<size_t> active_ends;  // of each line's small ones and of its others, behind a zero
  bool few = false;                 // whether few fours are active

  Active active_of(int line) const {
    const size_t* begin = &active_ends[size_t(2) * line];
    return {active.data() + begin[0], active.data() + begin[1], active.data() + begin[2]};
  }
};

// Notes which fours are active.
inline void find_active(Lines& read, int lines, int depth) {
  const int fours = depth / kInputs;
  const __m256i none = _mm256_setzero_si256(), most = _mm256_set1_epi8(64);
  read.active.resize(std::max(read.active.size(), size_t(lines) * fours));
  read.active_ends.assign(1, 0);
  uint16_t *begin = read.active.data(), *end = begin;
  const auto equal = [](__m256i a, __m256i b) {
    return unsigned(_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(a, b))));
  };
  for (int line = 0; line < lines; ++line) {
    const uint8_t* bytes = read.bytes + size_t(line) * depth;
    for (const bool are_small : {true, false}) {
      for (int four = 0; four < fours; four += 8) {
        const __m256i eight = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes + size_t(four) * kInputs));
        const unsigned small = equal(_mm256_min_epu8(eight, most), eight);
        unsigned found = are_small ? small & ~equal(eight, none) : small ^ 0xff;
        for (; found; found &= found - 1) *end++ = uint16_t(four + __builtin_ctz(found));
      }
      const size_t count = size_t(end - begin);
      read.active_ends.push_back(are_small ? count - (count - read.active_ends.back()) % 2 : count);
    }
  }
  read.few = double(end - begin) < kFew * lines * fours;
}

// Notes what four activations lie beyond: what is above, what is below.
inline void note_beyond(const uint8_t* bytes, int input, int low, std::vector<Beyond>& beyond) {
  Beyond above{input / kInputs, 1, {}}, below{input / kInputs, -1, {}};
  bool any_above = false, any_below = false;
  for (int i = 0; i < kInputs; ++i) {
    const int place = bytes[input + i] - low;
    any_above |= place > kWithin;
    any_below |= place < 0;
    above.by[i] = uint8_t(std::max(place - kWithin, 0));
    below.by[i] = uint8_t(std::max(-place, 0));
  }
  if (any_above) beyond.push_back(above);
  if (any_below) beyond.push_back(below);
}

// Brings lines within what does not clip, and notes what they lie beyond.
inline void bring_within(const uint8_t* bytes, int lines, int depth, int inputs, int low, Lines& read) {
  read.within.resize(std::max(read.within.size(), size_t(lines) * depth));
  read.bytes = read.within.data();
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
        if (missed & 1) note_beyond(bytes + size_t(line) * depth, first, low, read.beyond);
      }
    }
    read.ends.push_back(read.beyond.size());
  }
}

// Of each line `depth` bytes, of which the last from `inputs` on count for nothing, and zeros if they are `blank`; as
// they are where weights are `halved`, of which no product clips. Until the same thread's next call.
inline const Lines& readable(const uint8_t* bytes, int lines, int depth, int inputs, int low, bool blank, bool halved) {
  thread_local Lines read;
  if (halved)
    read.bytes = bytes;
  else
    bring_within(bytes, lines, depth, inputs, low, read);
  read.few = false;
  if (blank) find_active(read, lines, depth);
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

// Of a strip: which fours of inputs lie where.
struct Order {
  const uint16_t* inputs;  // the first of each four, in the order of memory
  const uint16_t* places;  // of each four
  int pairs;               // so many lie first, in twos that fit
};

// Brings the fours of each strip into pairs that fit.
class Pairing {
 public:
  void arrange(Arena& arena, int8_t* weights, int strips, int depth) {
    fours_ = depth / kInputs;
    inputs_ = arena.take<uint16_t>(size_t(strips) * fours_);
    places_ = arena.take<uint16_t>(size_t(strips) * fours_);
    pairs_ = arena.take<uint16_t>(strips);
    std::vector<int8_t> given(size_t(depth) * kOutputs);
    for (int strip = 0; strip < strips; ++strip, weights += given.size()) {
      const std::vector<int> order = pair_up(weights, strip);
      const size_t first = size_t(strip) * fours_;
      std::copy_n(weights, given.size(), given.begin());
      for (int place = 0; place < fours_; ++place) {
        std::copy_n(&given[size_t(order[place]) * kFour], kFour, weights + size_t(place) * kFour);
        inputs_[first + place] = uint16_t(order[place] * kInputs);
        places_[first + order[place]] = uint16_t(place);
      }
    }
  }

  Order of(int strip) const {
    const size_t first = size_t(strip) * fours_;
    return {inputs_ + first, places_ + first, pairs_[strip]};
  }

 private:
  static constexpr int kFour = kInputs * kOutputs;  // bytes
  static constexpr int kTried = 64;                 // at most, of those that might fit

  std::vector<int> pair_up(const int8_t* weights, int strip) {
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
    pairs_[strip] = uint16_t(order.size() / 2);
    order.insert(order.end(), single.begin(), single.end());
    return order;
  }

  int fours_ = 0;
  uint16_t *inputs_ = nullptr, *places_ = nullptr, *pairs_ = nullptr;
};

// Adds to a line's sums of a strip what its inputs lie beyond.
inline void add_beyond(const Lines& lines, int line, const int8_t* weights, const Order& order,
                       Ints (&sums)[kVectors]) {
  for (size_t i = lines.ends[line]; i < lines.ends[line + 1]; ++i) {
    const Beyond& beyond = lines.beyond[i];
    int32_t four;
    std::memcpy(&four, beyond.by, sizeof four);
    const __m256i spread = _mm256_set1_epi32(four), signs = _mm256_set1_epi16(beyond.sign);
    const int8_t* from = weights + size_t(order.places[beyond.four]) * kInputs * kOutputs;
    for (int half = 0; half < 2; ++half) {
      const __m256i column = _mm256_load_si256(reinterpret_cast<const __m256i*>(from) + half);
      const __m256i products = _mm256_madd_epi16(_mm256_maddubs_epi16(spread, column), signs);
      __m256i* to = reinterpret_cast<__m256i*>(sums) + half;
      _mm256_storeu_si256(to, _mm256_add_epi32(_mm256_loadu_si256(to), products));
    }
  }
}

#else

struct Lines {
  const uint8_t* bytes;
};

#ifdef SPECMT_SIGNED

inline int lowest(float, bool) { return 128; }

// Less 128, as signed bytes. Until the same thread's next call.
inline Lines readable(const uint8_t* bytes, int lines, int depth, int, int, bool, bool) {
  thread_local std::vector<uint8_t> read;
  const size_t count = size_t(lines) * depth;
  read.resize(std::max(read.size(), count));
  for (size_t i = 0; i < count; ++i) read[i] = bytes[i] ^ 128;
  return {read.data()};
}

#else

inline int lowest(float, bool) { return 0; }

inline Lines readable(const uint8_t* bytes, int, int, int, int, bool, bool) { return {bytes}; }

#endif

struct Order {};

struct Pairing {
  void arrange(Arena&, int8_t*, int, int) {}
  Order of(int) const { return {}; }
};

#endif

}  // namespace specmt
