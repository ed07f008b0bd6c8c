// What the passes are made of: layer norm, attention, rows of tables.
#pragma once

#include <cmath>
#include <stdexcept>
#include <string>

#include "network.h"

namespace specmt {

constexpr float kEpsilon = 1e-5f;  // of layer norms; fairseq's
constexpr int kReaders = 8;        // lines that attend at a time

// `from` and `to` may be the same line.
inline void normalise(const float* from, int width, int stride, const Norm& norm, float* to) {
  Floats total{};
  for (int i = 0; i < stride; i += kLanes) total += load(from + i);  // padding is zero
  const float mean = sum(total) / width;
  Floats squares{};
  int i = 0;
  for (; i + kLanes <= width; i += kLanes) squares += (load(from + i) - mean) * (load(from + i) - mean);
  if (i < width) {
    const Floats centred = first(load(from + i) - mean, width - i, 0);
    squares += centred * centred;
  }
  const float scale = 1 / std::sqrt(sum(squares) / width + kEpsilon);
  for (i = 0; i < stride; i += kLanes)
    store(to + i, (load(from + i) - mean) * scale * load(&norm.weight[i]) + load(&norm.bias[i]));
}

// Adds a row of an embedding table, `scale` times.
inline void add_row(const Stored& table, int64_t id, float scale, float* line) {
  if (id < 0 || id >= table.outputs) throw std::out_of_range("token id " + std::to_string(id));
  const int8_t* row = table.integers + size_t(id) * table.inputs;
  const float step = table.scales[id] * scale;
  for (int i = 0; i < table.inputs; ++i) line[i] += row[i] * step;
}

// Scores of the positions that each of a few lines of one sequence sees, for one head, padded to whole vectors with
// what weighs nothing, and the highest. Queries lie `span` floats apart, scores `room`; `keys` begin at the head's
// first unit.
template <int kLines>
void score_keys(const Reading* readings, const float* queries, size_t span, const float* keys, int units, int width,
                float* scores, size_t room, float* highest) {
  const float scale = 1 / std::sqrt(float(units));
  int longest = 0;
  Floats tops[kLines];
  for (int line = 0; line < kLines; ++line) {
    longest = std::max(longest, readings[line].visible);
    tops[line] = splat(kNone);
  }
  for (int begin = 0; begin < longest; begin += kLanes, keys += size_t(width) * kLanes) {
    Floats parts[kLines][4] = {};
    int unit = 0;
    for (; unit + 4 <= units; unit += 4)
      for (int part = 0; part < 4; ++part) {
        const Floats column = load(keys + (unit + part) * kLanes);
        for (int line = 0; line < kLines; ++line) parts[line][part] += queries[line * span + unit + part] * column;
      }
    for (; unit < units; ++unit)
      for (int line = 0; line < kLines; ++line)
        parts[line][0] += queries[line * span + unit] * load(keys + unit * kLanes);
    for (int line = 0; line < kLines; ++line) {
      const auto& sums = parts[line];
      const Floats seen =
          first(((sums[0] + sums[1]) + (sums[2] + sums[3])) * scale, readings[line].visible - begin, kNone);
      store(scores + line * room + begin, seen);
      tops[line] = larger(tops[line], seen);
    }
  }
  for (int line = 0; line < kLines; ++line) highest[line] = largest(tops[line]);
}

// Makes weights of scores; one over their sum.
inline float weigh(float* scores, float highest, int visible) {
  Floats total{};
  for (int begin = 0; begin < visible; begin += kLanes) {
    const Floats weight = first(exponential(load(scores + begin) - highest), visible - begin, 0);
    store(scores + begin, weight);
    total += weight;
  }
  return 1 / sum(total);
}

// The weighted sum of the first `visible` values. `values` begin at the head's first unit.
inline void blend(const float* weights, float share, const float* values, int units, int width, int visible,
                  float* to) {
  int unit = 0;
  for (; unit + 4 * kLanes <= units; unit += 4 * kLanes) {
    Floats read[4] = {};
    for (int key = 0; key < visible; ++key)
      for (int part = 0; part < 4; ++part)
        read[part] += weights[key] * load(values + size_t(key) * width + unit + part * kLanes);
    for (int part = 0; part < 4; ++part) store(to + unit + part * kLanes, read[part] * share);
  }
  for (; unit + kLanes <= units; unit += kLanes) {
    Floats read{};
    for (int key = 0; key < visible; ++key) read += weights[key] * load(values + size_t(key) * width + unit);
    store(to + unit, read * share);
  }
  for (; unit < units; ++unit) {
    float read = 0;
    for (int key = 0; key < visible; ++key) read += weights[key] * values[size_t(key) * width + unit];
    to[unit] = read * share;
  }
}

// What each head of each line reads: softmax(query . keys / sqrt(units)) of the positions that the line sees, times
// their values, in 8 bits. Queries lie `span` floats apart, outputs `stride` bytes. Lines of one sequence go step by
// step, head by head, while the head's keys and values are near: a head of a line alone would wait for its own results
// most of the time.
inline void attend(const Reading* readings, int count, const float* queries, size_t span, int heads, int width,
                   const Quantiser& writes, int stride, uint8_t* bytes, Workspace& space) {
  const int units = width / heads;
  for (int begin = 0, end; begin < count; begin = end) {
    const KeyValues& cache = *readings[begin].cache;
    int longest = readings[begin].visible;
    for (end = begin + 1; end < count && end < begin + kReaders && readings[end].cache == &cache; ++end)
      longest = std::max(longest, readings[end].visible);
    const int here = end - begin, room = rounded_up(longest, kLanes);
    float* scores = space.attention.get(size_t(here) * room);
    float* attended = space.attended.get(size_t(here) * stride);
    float highest[kReaders], shares[kReaders];
    for (int head = 0; head < heads; ++head) {
      const int unit = head * units;
      const float* keys = cache.keys.data() + size_t(unit) * kLanes;
      for (int line = 0; line < here;) {
        const Reading* reading = readings + begin + line;
        const float* query = queries + size_t(begin + line) * span + unit;
        if (here - line >= 4) {
          score_keys<4>(reading, query, span, keys, units, width, scores + size_t(line) * room, room, highest + line);
          line += 4;
        } else {
          score_keys<1>(reading, query, span, keys, units, width, scores + size_t(line) * room, room, highest + line);
          line += 1;
        }
      }
      for (int line = 0; line < here; ++line)
        shares[line] = weigh(scores + size_t(line) * room, highest[line], readings[begin + line].visible);
      for (int line = 0; line < here; ++line)
        blend(scores + size_t(line) * room, shares[line], cache.values.data() + unit, units, width,
              readings[begin + line].visible, attended + size_t(line) * stride + unit);
    }
    for (int line = 0; line < here; ++line)
      writes.apply(attended + size_t(line) * stride, width, stride, bytes + size_t(begin + line) * stride);
  }
}

// What the bigram term adds to tokens behind one token: of `rank` products, each times a gate.
class Transition {
 public:
  void follow(const Stored& lefts, int64_t left) {
    const int rank = lefts.inputs;
    const int8_t* from = lefts.integers + size_t(left) * rank;
    left_.assign(from, from + rank);
    scale_ = lefts.scales[left];
  }

  float to(const Stored& rights, int place, const float* gate) const {
    const int rank = rights.inputs;
    const int8_t* right = rights.integers + size_t(place) * rank;
    Floats total{};
    int i = 0;
    for (; i + kLanes <= rank; i += kLanes) total += load(&left_[i]) * floats(integers(right + i)) * load(gate + i);
    float rest = 0;
    for (; i < rank; ++i) rest += left_[i] * right[i] * gate[i];
    return (sum(total) + rest) * scale_ * rights.scales[place];
  }

 private:
  std::vector<float> left_;
  float scale_ = 0;
};

}  // namespace specmt
