// Products of 8-bit activations with 8-bit weights, summed exactly as integers.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "crew.h"
#include "memory.h"
#include "tiles.h"
#include "vectors.h"

namespace specmt {

constexpr size_t kShared = 1 << 17;  // multiplications from which on helpers take part

constexpr int kMostInputs = 32896;  // that 32 bits hold, whatever they and the correction are: 2^31 / (2 * 255 * 128)

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

  SPECMT_INLINE void put(Floats values, Floats inverse, Floats least, Floats most, uint8_t* to) const {
    store_bytes(to, whole(larger(smaller(values * inverse, most), least)) + int(zero));
  }
};

// Weights of one or more matrices that read the same activation, one below the other.
class Product {
 public:
  Product() = default;

  // `filling`: what an output beyond the last comes to. The arena outlives it.
  Product(Arena& arena, const std::vector<Stored>& matrices, const Quantiser& quantiser, float filling = 0) {
    if (matrices.empty()) throw std::invalid_argument("a product of no matrix");
    for (const Stored& matrix : matrices) outputs_ += matrix.outputs;
    if (matrices[0].inputs > kMostInputs) throw std::invalid_argument("a matrix of too many inputs");
    inputs_ = matrices[0].inputs;
    depth_ = rounded_up(inputs_, kGroup);
    blank_ = quantiser.zero == 0;
    groups_ = rounded_up(outputs_, kGroup) / kGroup;
    const int padded = groups_ * kGroup;
    scales_ = arena.take<float>(padded);
    biases_ = arena.take<float>(padded);
    corrections_ = arena.take<int32_t>(padded);
    std::fill(biases_ + outputs_, biases_ + padded, filling);
    std::vector<const int8_t*> rows(padded);  // null beyond the last
    int output = 0;
    for (const Stored& matrix : matrices)
      for (int row = 0; row < matrix.outputs; ++row, ++output) {
        rows[output] = matrix.integers + size_t(row) * inputs_;
        scales_[output] = matrix.scales[row] * quantiser.step;
        biases_[output] = matrix.bias ? matrix.bias[row] : 0;
      }
    halved_ = kHalves && std::all_of(rows.begin(), rows.begin() + outputs_, [&](auto row) { return are_halves(row); });
    low_ = lowest(quantiser.zero, halved_);
    for (output = 0; output < outputs_; ++output)
      corrections_[output] = (low_ - int32_t(quantiser.zero)) * total(rows[output]);
    weights_ = arena.take<int8_t>(padded / kOutputs * strip_bytes());
    if (halved_)
      pack_halves(rows);
    else
      pack(rows);
    if (!halved_) pairing_.arrange(arena, weights_, padded / kOutputs, depth_);
  }

  int padded_outputs() const { return groups_ * kGroup; }
  int depth() const { return depth_; }

  // For each of `lines` (each `depth` bytes) and each vector of outputs, calls finish(line, first output, values): in
  // order of outputs within a group, but for several groups at a time.
  template <class Finish>
  void run(Crew& crew, const uint8_t* activations, int lines, const Finish& finish) const {
#ifdef SPECMT_TILES
    if (lines >= kFewestTiled)
      return share(crew, lines, [&](int begin, int end) { run_tiled(activations, lines, begin, end, finish); });
#endif
    const Lines& read = readable(activations, lines, depth_, inputs_, low_, blank_, halved_);
#ifdef SPECMT_BYTES_CLIP
    if (read.few) return share(crew, lines, [&](int begin, int end) { run_active(read, lines, begin, end, finish); });
#endif
    share(crew, lines, [&](int begin, int end) { run_groups(read, lines, begin, end, finish); });
  }

  // The products of `lines`, `padded_outputs` floats each.
  void write(Crew& crew, const uint8_t* activations, int lines, float* to) const {
    run(crew, activations, lines,
        [&](int line, int output, Floats values) { store(to + size_t(line) * padded_outputs() + output, values); });
  }

 private:
  static constexpr int kStrips = kGroup / kOutputs;  // of a group

  // Weights of a strip's outputs, in memory of their own or in that of the network.
  struct Strip {
    int number;
    const int8_t* weights;
    bool halved;
  };

  size_t strip_bytes() const { return size_t(kOutputs) * depth_ / (halved_ ? 2 : 1); }

  int32_t total(const int8_t* row) const { return std::accumulate(row, row + inputs_, int32_t(0)); }

  bool are_halves(const int8_t* row) const {
    uint8_t all = 0;
    for (int input = 0; input < inputs_; ++input) all |= uint8_t(row[input] - kLeastHalf);
    return all <= kMostHalf - kLeastHalf;
  }

  // Writes memory from one end to the other: a vector of outputs' fours at a time.
  void pack(const std::vector<const int8_t*>& rows) {
    std::vector<int8_t> lines(size_t(kLanes) * depth_);
    for (int output = 0; output < outputs_; output += kLanes) {
      for (int lane = 0; lane < kLanes; ++lane) {
        int8_t* line = &lines[size_t(lane) * depth_];
        if (const int8_t* row = rows[output + lane])
          std::copy_n(row, inputs_, line);
        else
          std::fill_n(line, inputs_, int8_t(0));
      }
      lay<kLanes>(lines, weights_ + output / kOutputs * strip_bytes() + output % kOutputs * kInputs);
    }
  }

  // The same of halves (see `kHalves`).
  void pack_halves(const std::vector<const int8_t*>& rows) {
    const std::vector<int8_t> none(inputs_);
    std::vector<int8_t> lines(size_t(kWidest) * depth_);
    for (int output = 0; output < outputs_; output += 2 * kWidest) {
      for (int lane = 0; lane < kWidest; ++lane) {
        const int8_t *lower = rows[output + lane], *upper = rows[output + kWidest + lane];
        if (!lower) lower = none.data();
        if (!upper) upper = none.data();
        int8_t* line = &lines[size_t(lane) * depth_];
        for (int input = 0; input < inputs_; ++input)
          line[input] = int8_t((lower[input] & 15) | uint8_t(upper[input]) << 4);
      }
      lay<kWidest>(lines, weights_ + output / kOutputs * strip_bytes() + output % kOutputs / 2 * kInputs);
    }
    for (int output = 0; output < outputs_; ++output) {
      scales_[output] /= kHalfScale;
      corrections_[output] *= kHalfScale;
    }
  }

  // Lines of `depth_` bytes, the same four of all of them together.
  template <int kCount>
  void lay(const std::vector<int8_t>& lines, int8_t* to) const {
    const int between = int(strip_bytes() / (depth_ / kInputs));
    for (int input = 0; input < depth_; input += kInputs, to += between)
      for (int line = 0; line < kCount; ++line)
        std::memcpy(to + line * kInputs, &lines[size_t(line) * depth_ + input], kInputs);
  }

  // What is done to all groups, with the crew's help where it is much.
  template <class Work>
  void share(Crew& crew, int lines, const Work& work) const {
    if (groups_ == 1 || size_t(lines) * groups_ * kGroup * depth_ < kShared) return work(0, groups_);
    crew.share(groups_, work);
  }

  // A strip after the other, each for all lines: its weights stay near.
  template <class Finish>
  void run_groups(const Lines& activations, int lines, int begin, int end, const Finish& finish) const {
    const int most = halved_ ? kMostLines : kMostWhole, parts = (lines + most - 1) / most;
    for (int number = begin * kStrips; number < end * kStrips; ++number) {
      const Strip strip = parts < kPartsLaidOut ? stored(number) : laid_out(number);
      for (int part = 0; part < parts; ++part) {
        const int first = int(int64_t(lines) * part / parts), last = int(int64_t(lines) * (part + 1) / parts);
        run_part(activations, first, last - first, strip, finish);
      }
    }
  }

  Strip stored(int number) const { return {number, weights_ + number * strip_bytes(), halved_}; }

  // A strip of which each weight has a byte, if there is memory for it: a helper has nobody to tell that there is none.
  // It stands until the thread asks for another.
  Strip laid_out(int number) const {
    const Strip strip = stored(number);
#if defined(__AVX2__)
    try {
      if (strip.halved) {
        thread_local Buffer<int8_t> whole;
        int8_t* to = whole.get(size_t(kOutputs) * depth_);
        unfold(strip.weights, int(strip_bytes() / sizeof(Bytes)), sizeof(Bytes), to);
        return {number, to, false};
      }
    } catch (const std::bad_alloc&) {
    }
#endif
    return strip;
  }

  template <class Finish>
  void run_part(const Lines& activations, int begin, int lines, const Strip& strip, const Finish& finish) const {
    switch (lines) {
      case 1:
        return run_lines<1>(activations, begin, strip, finish);
      case 2:
        return run_lines<2>(activations, begin, strip, finish);
      case 3:
        if constexpr (kMostLines >= 3) return run_lines<3>(activations, begin, strip, finish);
        break;
      case 4:
        if constexpr (kMostLines >= 4) return run_lines<4>(activations, begin, strip, finish);
        break;
      case 5:
        if constexpr (kMostLines >= 5) return run_lines<5>(activations, begin, strip, finish);
        break;
      case 6:
        if constexpr (kMostLines >= 6) return run_lines<6>(activations, begin, strip, finish);
    }
  }

  template <int kLines, class Finish>
  void run_lines(const Lines& activations, int begin, const Strip& strip, const Finish& finish) const {
    alignas(64) Ints sums[kLines][kVectors];  // Clang forgets what the type says of it
    const uint8_t* bytes = activations.bytes + size_t(begin) * depth_;
    const int32_t* corrections = corrections_ + strip.number * kOutputs;
#ifdef SPECMT_BYTES_CLIP
    if (halved_) {
      const auto add = strip.halved ? add_up_halves<kLines, false> : add_up_halves<kLines, true>;
      add(bytes, depth_, strip.weights, corrections, sums);
    } else if constexpr (kLines <= kMostWhole) {  // the most that `run_groups` asks for
      const Order order = pairing_.of(strip.number);
      add_up<kLines>(bytes, depth_, strip.weights, order, corrections, sums);
      for (int line = 0; line < kLines; ++line) add_beyond(activations, begin + line, strip.weights, order, sums[line]);
    }
#else
    const auto add = strip.halved ? add_up<kLines, kHalves> : add_up<kLines, false>;
    add(bytes, depth_, strip.weights, {}, corrections, sums);
#endif
    for (int line = 0; line < kLines; ++line) finish_line(sums[line], begin + line, strip.number, finish);
  }

  template <class Finish>
  SPECMT_INLINE void finish_line(const Ints (&sums)[kVectors], int line, int strip, const Finish& finish) const {
    for (int vector = 0; vector < kVectors; ++vector) {
      const int output = strip * kOutputs + vector * kLanes;
      finish(line, output, floats(sums[vector]) * load(scales_ + output) + load(biases_ + output));
    }
  }

#ifdef SPECMT_BYTES_CLIP
  // As `run_groups`, of lines that have few active fours. Each asks for its share of the next strip.
  template <class Finish>
  void run_active(const Lines& activations, int lines, int begin, int end, const Finish& finish) const {
    const size_t bytes = strip_bytes();
    for (int number = begin * kStrips; number < end * kStrips; ++number) {
      const Strip strip = stored(number);
      const int8_t *end = strip.weights + bytes, *next = end;
      for (int line = 0; line < lines; ++line) {
        for (; next < end + bytes * (line + 1) / lines; next += kCacheLine) fetch(next);
        add_active(activations, line, strip, finish);
      }
    }
  }

  template <class Finish>
  void add_active(const Lines& activations, int line, const Strip& strip, const Finish& finish) const {
    alignas(64) Ints sums[kVectors];
    const uint8_t* bytes = activations.bytes + size_t(line) * depth_;
    const int32_t* corrections = corrections_ + strip.number * kOutputs;
    const Active active = activations.active_of(line);
    if (strip.halved) {
      add_up_active_halves(bytes, active, strip.weights, corrections, sums);
    } else {
      const Order order = pairing_.of(strip.number);
      add_up_active(bytes, active, strip.weights, order, corrections, sums);
      add_beyond(activations, line, strip.weights, order, sums);
    }
    finish_line(sums, line, strip.number, finish);
  }
#endif

#ifdef SPECMT_TILES
  // All tiles have as many lines: the last begins early.
  template <class Finish>
  void run_tiled(const uint8_t* activations, int lines, int begin, int end, const Finish& finish) const {
    const int tiles = (lines + kTiledLines - 1) / kTiledLines, height = (lines + tiles - 1) / tiles;
    shape_tiles(height);
    for (int group = begin; group < end; ++group)
      for (int line = 0; line < lines; line += 2 * height) run_tiles(activations, lines, line, height, group, finish);
  }

  // One or two tiles of lines.
  template <class Finish>
  void run_tiles(const uint8_t* activations, int lines, int line, int height, int group, const Finish& finish) const {
    alignas(64) Ints sums[2][kTiledLines][kVectors];
    const int8_t* weights = weights_ + group * strip_bytes();
    const int32_t* corrections = corrections_ + group * kGroup;
    const int first = std::min(line, lines - height), second = std::min(line + height, lines - height);
    const uint8_t *bytes = activations + size_t(first) * depth_, *others = activations + size_t(second) * depth_;
    if (second > first) {
      const auto add = halved_ ? add_up_two_tiles<true> : add_up_two_tiles<false>;
      add(bytes, others, depth_, weights, corrections, sums[0], sums[1]);
    } else {
      const auto add = halved_ ? add_up_tiled<true> : add_up_tiled<false>;
      add(bytes, depth_, weights, corrections, sums[0]);
    }
    const int middle = first + height;
    for (; line < middle; ++line) finish_line(sums[0][line - first], line, group, finish);
    for (; line < second + height; ++line) finish_line(sums[1][line - second], line, group, finish);
  }
#endif

  int outputs_ = 0;
  int inputs_ = 0;
  int depth_ = 0;
  int low_ = 0;         // see `lowest`
  bool blank_ = false;  // whether zeros count for nothing, as behind a ReLU
  int groups_ = 0;
  bool halved_ = false;  // whether weights lie two in a byte
  int8_t* weights_ = nullptr;
  Pairing pairing_;
  float* scales_ = nullptr;
  float* biases_ = nullptr;
  int32_t* corrections_ = nullptr;
};

}  // namespace specmt
