// What the passes are made of: layer norm, attention, rows of tables, the best of many scores.
#pragma once

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "network.h"

namespace specmt {

constexpr float kEpsilon = 1e-5f;  // of layer norms; fairseq's
constexpr float kNone = -std::numeric_limits<float>::infinity();

// `from` and `to` may be the same line.
inline void normalise(const float* from, int width, int stride, const Norm& norm, float* to) {
  Floats total{};
  for (int i = 0; i < stride; i += kLanes) total += load(from + i);  // padding is zero
  const float mean = sum(total) / width;
  Floats squares{};
  for (int i = 0; i < width; i += kLanes) {
    const Floats centred = first(load(from + i) - mean, width - i, 0);
    squares += centred * centred;
  }
  const float scale = 1 / std::sqrt(sum(squares) / width + kEpsilon);
  for (int i = 0; i < stride; i += kLanes)
    store(to + i, (load(from + i) - mean) * scale * load(&norm.weight[i]) + load(&norm.bias[i]));
}

// Adds a row of an embedding table, `scale` times.
inline void add_row(const Stored& table, int64_t id, float scale, float* line) {
  if (id < 0 || id >= table.outputs) throw std::out_of_range("token id " + std::to_string(id));
  const int8_t* row = table.integers + size_t(id) * table.inputs;
  const float step = table.scales[id] * scale;
  for (int i = 0; i < table.inputs; ++i) line[i] += row[i] * step;
}

// What one head reads: softmax(query . keys / sqrt(units)) of the first `visible` positions, times their values.
// `keys` and `values` begin at the head's first unit. `weights` holds `visible` rounded up to whole vectors.
inline void attend_head(const float* query, const float* keys, const float* values, int units, int width, int visible,
                        float* weights, float* to) {
  const float scale = 1 / std::sqrt(float(units));
  const int blocks = (visible + kLanes - 1) / kLanes;
  Floats top = splat(kNone);
  for (int block = 0; block < blocks; ++block) {
    const float* block_keys = keys + size_t(block) * width * kLanes;
    Floats parts[4] = {};
    int unit = 0;
    for (; unit + 4 <= units; unit += 4)
      for (int part = 0; part < 4; ++part)
        parts[part] += query[unit + part] * load(block_keys + (unit + part) * kLanes);
    for (; unit < units; ++unit) parts[0] += query[unit] * load(block_keys + unit * kLanes);
    const Floats scores = ((parts[0] + parts[1]) + (parts[2] + parts[3])) * scale;
    const Floats seen = first(scores, visible - block * kLanes, kNone);
    store(weights + block * kLanes, seen);
    top = larger(top, seen);
  }
  const float highest = largest(top);
  Floats total{};
  for (int block = 0; block < blocks; ++block) {
    const Floats weight = first(exponential(load(weights + block * kLanes) - highest), visible - block * kLanes, 0);
    store(weights + block * kLanes, weight);
    total += weight;
  }
  const float share = 1 / sum(total);
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

inline void attend(const float* query, const KeyValues& cache, int heads, int width, int visible, float* weights,
                   float* to) {
  const int units = width / heads;
  for (int head = 0; head < heads; ++head) {
    const int unit = head * units;
    attend_head(query + unit, cache.keys.data() + size_t(unit) * kLanes, cache.values.data() + unit, units, width,
                visible, weights, to + unit);
  }
}

// Log of the sum of the exponentials of `size` scores (a multiple of 16), of which `highest` is the largest.
inline float log_sum(const float* scores, int size, float highest) {
  Floats total{};
  for (int i = 0; i < size; i += kLanes) total += exponential(load(scores + i) - highest);
  return highest + float(std::log(double(sum(total))));
}

// As the lattice's transitions: what the token at `place` gains behind the token `left`.
inline float transition(const Stored& lefts, int64_t left, const Stored& rights, int place, const float* gate) {
  const int rank = lefts.inputs;
  const int8_t* a = lefts.integers + size_t(left) * rank;
  const int8_t* b = rights.integers + size_t(place) * rank;
  Floats total{};
  int i = 0;
  float gated[kLanes];
  for (; i + kLanes <= rank; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) gated[lane] = float(a[i + lane] * b[i + lane]);
    total += load(gated) * load(gate + i);
  }
  float rest = 0;
  for (; i < rank; ++i) rest += float(a[i] * b[i]) * gate[i];
  return (sum(total) + rest) * lefts.scales[left] * rights.scales[place];
}

inline void KeyValues::reserve(int positions, int width) {
  keys.resize(size_t(positions) * width);
  values.resize(size_t(positions) * width);
}

inline void KeyValues::write(int position, const float* key, const float* value, int width) {
  float* block = keys.data() + size_t(position / kLanes) * width * kLanes + position % kLanes;
  for (int unit = 0; unit < width; ++unit) block[unit * kLanes] = key[unit];
  std::copy_n(value, width, values.data() + size_t(position) * width);
}

inline void KeyValues::fill(int count, const float* lines, size_t stride, int width) {
  for (int begin = 0; begin < count; begin += kLanes) {
    const int here = std::min(count - begin, kLanes);
    const float* from = lines + begin * stride;
    float* block = keys.data() + size_t(begin) * width;
    for (int unit = 0; unit < width; ++unit)
      for (int place = 0; place < here; ++place) block[unit * kLanes + place] = from[place * stride + unit];
  }
  for (int place = 0; place < count; ++place)
    std::copy_n(lines + place * stride + width, width, values.data() + size_t(place) * width);
}

inline void Row::reserve(int positions, int width) {
  if (positions <= capacity) return;
  const int wanted = rounded_up(std::max(positions, 2 * capacity), kLanes);
  for (KeyValues& layer : layers) layer.reserve(wanted, width);
  capacity = wanted;  // now that there was memory for all
}

// Places of the `count` largest of `scores` (`size`: a multiple of 64), best first, the leftmost of equals.
inline void best_places(float* scores, int size, int count, Selection& space, int* places) {
  const int blocks = size / kGroup;
  const auto block_maximum = [scores](int block) {
    const float* from = scores + block * kGroup;
    return largest(larger(larger(load(from), load(from + 16)), larger(load(from + 32), load(from + 48))));
  };
  std::vector<float>& maxima = space.maxima;
  std::vector<float>& taken = space.taken;
  maxima.resize(rounded_up(blocks, kLanes));
  std::fill(maxima.begin(), maxima.end(), kNone);
  for (int block = 0; block < blocks; ++block) maxima[block] = block_maximum(block);
  taken.resize(count);
  for (int i = 0; i < count; ++i) {
    const int block = int(std::max_element(maxima.begin(), maxima.begin() + blocks) - maxima.begin());
    float* from = scores + block * kGroup;
    const int place = int(std::max_element(from, from + kGroup) - from);
    places[i] = block * kGroup + place;
    taken[i] = from[place];
    if (i + 1 == count) break;
    from[place] = kNone;
    maxima[block] = block_maximum(block);
  }
  for (int i = 0; i < count; ++i) scores[places[i]] = taken[i];
}

}  // namespace specmt
