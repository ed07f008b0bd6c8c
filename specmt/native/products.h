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
#include "dots.h"
#include "memory.h"
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
    low_ = lowest(quantiser.zero);
    blank_ = quantiser.zero == 0;
    groups_ = rounded_up(outputs_, kGroup) / kGroup;
    const int padded = groups_ * kGroup;
    weights_ = arena.take<int8_t>(size_t(padded) * depth_);
    scales_ = arena.take<float>(padded);
    biases_ = arena.take<float>(padded);
    corrections_ = arena.take<int32_t>(padded);
    std::fill(biases_ + outputs_, biases_ + padded, filling);
    int output = 0;
    for (const Stored& matrix : matrices)
      for (int row = 0; row < matrix.outputs; ++row, ++output) pack(matrix, row, output, quantiser);
    pairing_.arrange(arena, weights_, padded / kOutputs, depth_);
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
    const Lines& read = readable(activations, lines, depth_, inputs_, low_, blank_);
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

  void pack(const Stored& matrix, int row, int output, const Quantiser& quantiser) {
    const int8_t* from = matrix.integers + size_t(row) * matrix.inputs;
    int8_t* to = weights_ + size_t(output / kOutputs) * kOutputs * depth_ + output % kOutputs * kInputs;
    int input = 0;
    for (; input + kInputs <= matrix.inputs; input += kInputs, to += kOutputs * kInputs)
      std::memcpy(to, from + input, kInputs);
    std::copy(from + input, from + matrix.inputs, to);
    const int32_t total = std::accumulate(from, from + matrix.inputs, int32_t(0));
    scales_[output] = matrix.scales[row] * quantiser.step;
    corrections_[output] = (low_ - int32_t(quantiser.zero)) * total;
    biases_[output] = matrix.bias ? matrix.bias[row] : 0;
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
    const int parts = (lines + kMostLines - 1) / kMostLines;
    for (int strip = begin * kStrips; strip < end * kStrips; ++strip)
      for (int part = 0; part < parts; ++part) {
        const int first = int(int64_t(lines) * part / parts), last = int(int64_t(lines) * (part + 1) / parts);
        run_part(activations, first, last - first, strip, finish);
      }
  }

  template <class Finish>
  void run_part(const Lines& activations, int begin, int lines, int strip, const Finish& finish) const {
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
  void run_lines(const Lines& activations, int begin, int strip, const Finish& finish) const {
    alignas(64) Ints sums[kLines][kVectors];  // Clang forgets what the type says of it
    const int8_t* weights = weights_ + size_t(strip) * kOutputs * depth_;
    const Order order = pairing_.of(strip);
    add_up<kLines>(activations.bytes() + size_t(begin) * depth_, depth_, weights, order,
                   corrections_ + strip * kOutputs, sums);
#ifdef SPECMT_BYTES_CLIP
    for (int line = 0; line < kLines; ++line) add_beyond(activations, begin + line, weights, order, sums[line]);
#endif
    for (int line = 0; line < kLines; ++line) finish_line(sums[line], begin + line, strip, finish);
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
    const size_t bytes = size_t(kOutputs) * depth_;  // of a strip
    for (int strip = begin * kStrips; strip < end * kStrips; ++strip) {
      const int8_t *weights = weights_ + strip * bytes, *next = weights + bytes;
      const Order order = pairing_.of(strip);
      for (int line = 0; line < lines; ++line) {
        for (; next < weights + bytes + bytes * (line + 1) / lines; next += kCacheLine) fetch(next);
        alignas(64) Ints sums[kVectors];
        add_up_active(activations.bytes() + size_t(line) * depth_, activations.active_of(line), weights, order,
                      corrections_ + strip * kOutputs, sums);
        add_beyond(activations, line, weights, order, sums);
        finish_line(sums, line, strip, finish);
      }
    }
  }
#endif

#ifdef SPECMT_TILES
  // All tiles have as many lines: the last begins early.
  template <class Finish>
  void run_tiled(const uint8_t* activations, int lines, int begin, int end, const Finish& finish) const {
    const int tiles = (lines + kTiledLines - 1) / kTiledLines, height = (lines + tiles - 1) / tiles;
    shape_tiles(height);
    alignas(64) Ints sums[kTiledLines][kVectors];
    for (int group = begin; group < end; ++group)
      for (int line = 0; line < lines;) {
        const int first = std::min(line, lines - height);
        add_up_tiled(activations + size_t(first) * depth_, depth_, weights_ + size_t(group) * kGroup * depth_,
                     corrections_ + group * kGroup, sums);
        for (; line < first + height; ++line) finish_line(sums[line - first], line, group, finish);
      }
  }

#endif

  int outputs_ = 0;
  int inputs_ = 0;
  int depth_ = 0;
  int low_ = 0;         // see `lowest`
  bool blank_ = false;  // whether zeros count for nothing, as behind a ReLU
  int groups_ = 0;
  int8_t* weights_ = nullptr;
  Pairing pairing_;
  float* scales_ = nullptr;
  float* biases_ = nullptr;
  int32_t* corrections_ = nullptr;
};

}  // namespace specmt
