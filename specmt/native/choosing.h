// The best of many outputs.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "products.h"

namespace specmt {

constexpr float kNone = -std::numeric_limits<float>::infinity();

// Where `value` stands first among `count` floats.
inline int place_of(float value, const float* from, int count) {
  return int(std::find(from, from + count, value) - from);
}

inline float largest_of(const float* from, int size) {
  Floats top = load(from);
  for (int i = kLanes; i < size; i += kLanes) top = larger(top, load(from + i));
  return largest(top);
}

// What a product gives to choose outputs by: for each line `size` scores, and the largest of each group of 64.
struct Scores {
  Buffer<float> all, maxima;
  std::vector<float> taken;  // by `best_places`
  int size = 0, maxima_size = 0;

  struct Place {
    int number;
    float score;
  };

  void prepare(int lines, int padded_outputs);
  float* of(int line) { return all.begin() + size_t(line) * size; }
  float* maxima_of(int line) { return maxima.begin() + size_t(line) * maxima_size; }

  // To be called in order of outputs within a group. What is not a number counts as the least there is, so that
  // whatever the weights are, only outputs that there are come out best.
  SPECMT_INLINE void put(int line, int output, Floats values) {
    float* to = of(line) + output;
    store(to, larger(values, splat(std::numeric_limits<float>::lowest())));
    if (output % kGroup == kGroup - kLanes) maxima_of(line)[output / kGroup] = largest_of(to + kLanes - kGroup, kGroup);
  }

  // The best place of a line, the leftmost of equals.
  Place best(int line) {
    const float score = largest_of(maxima_of(line), maxima_size);
    const int group = place_of(score, maxima_of(line), size / kGroup);
    return {group * kGroup + place_of(score, of(line) + size_t(group) * kGroup, kGroup), score};
  }

  // Lets a place be the best no more.
  void pass_over(int line, int place) {
    const int group = place / kGroup;
    of(line)[place] = kNone;
    maxima_of(line)[group] = largest_of(of(line) + size_t(group) * kGroup, kGroup);
  }
};

inline void score_outputs(const Product& product, Crew& crew, const uint8_t* bytes, int lines, Scores& scores) {
  scores.prepare(lines, product.padded_outputs());
  product.run(crew, bytes, lines, [&](int line, int output, Floats values) { scores.put(line, output, values); });
}

// Places of the `count` largest of a line's scores, best first, the leftmost of equals. Once a line: maxima are used
// up.
inline void best_places(Scores& scores, int line, int count, int* places) {
  std::vector<float>& taken = scores.taken;
  taken.resize(count);
  for (int i = 0; i < count; ++i) {
    const Scores::Place best = scores.best(line);
    places[i] = best.number;
    taken[i] = best.score;
    if (i + 1 < count) scores.pass_over(line, best.number);
  }
  for (int i = 0; i < count; ++i) scores.of(line)[places[i]] = taken[i];
}

// Log of the sum of the exponentials of `size` scores (a multiple of 16), of which `highest` is the largest.
inline float log_sum(const float* scores, int size, float highest) {
  Floats total{};
  for (int i = 0; i < size; i += kLanes) total += exponential(load(scores + i) - highest);
  return highest + float(std::log(double(sum(total))));
}

// The best output of a line by half of the bytes: of weights rounded to 4 bits.
//
// An output comes at most to what it does with those, and the length of what rounding took from its weights times that
// of the line (the inequality of Cauchy and Schwarz). Those that may come to more than the best so far are computed one
// by one, the most promising first: of several thousand, ten or so. What comes out is the best of all.
class Screen {
 public:
  Screen() = default;

  // Of a matrix, which outlives it.
  Screen(Arena& arena, const Stored& matrix, const Quantiser& reads) : matrix_(matrix), reads_(reads) {
    const int padded = rounded_up(matrix.outputs, kGroup);
    reaches_ = arena.take<float>(padded);
    biases_ = arena.take<float>(padded);
    std::fill(biases_ + matrix.outputs, biases_ + padded, kNone);
    std::vector<int8_t> rounded(size_t(matrix.outputs) * matrix.inputs);
    std::vector<float> scales(matrix.outputs);
    for (int output = 0; output < matrix.outputs; ++output) {
      const size_t first = size_t(output) * matrix.inputs;
      const Rounding rounding = round(matrix.integers + first, matrix.inputs, &rounded[first]);
      scales[output] = matrix.scales[output] * rounding.step;
      reaches_[output] = matrix.scales[output] * reads.step * rounding.reach;
      biases_[output] = matrix.bias ? matrix.bias[output] : 0;
    }
    const Stored stored{rounded.data(), scales.data(), nullptr, matrix.outputs, matrix.inputs};
    product_ = Product(arena, {stored}, reads);
  }

  // Whether a matrix is large enough, has more than 4 bits, and no score of it overflows.
  static bool fits(const Stored& matrix, const Quantiser& reads) {
    const size_t weights = size_t(matrix.outputs) * matrix.inputs;
    const auto is_half = [](int8_t weight) { return weight >= kLeastHalf && weight <= kMostHalf; };
    if (!kHalves || weights < kShared || std::all_of(matrix.integers, matrix.integers + weights, is_half)) return false;
    return std::all_of(matrix.scales, matrix.scales + matrix.outputs, [&](float scale) {
      return std::isfinite(scale * reads.step * float(matrix.inputs) * 255 * 255);
    });
  }

  bool serves() const { return matrix_.integers; }

  // What each output of the lines may come to.
  void bound(Crew& crew, const uint8_t* bytes, int lines, Scores& bounds) const {
    bounds.prepare(lines, product_.padded_outputs());
    std::vector<float> lengths(lines);
    for (int line = 0; line < lines; ++line) lengths[line] = length(bytes + size_t(line) * product_.depth());
    product_.run(crew, bytes, lines, [&](int line, int output, Floats values) {
      bounds.put(line, output, values + load(reaches_ + output) * lengths[line] + load(biases_ + output));
    });
  }

  // The best output of a line, the leftmost of equals; none (less than 0) if too many might be. Once a line: bounds are
  // used up.
  int best(const uint8_t* bytes, int line, Scores& bounds) const {
    int best = -1;
    float highest = kNone;
    for (int tried = 0; tried < kMostTried; ++tried) {
      const Scores::Place place = bounds.best(line);
      if (place.score < highest || place.number >= matrix_.outputs) return best;
      const float score = score_of(bytes, place.number);
      if (score > highest || (score == highest && place.number < best)) {
        best = place.number;
        highest = score;
      }
      bounds.pass_over(line, place.number);
    }
    return -1;
  }

 private:
  // A row is `step` times integers of 4 bits and what is as long as `reach` at most.
  struct Rounding {
    float step, reach;
  };

  static constexpr int kMostTried = 256;         // outputs; a few hundred take as long as the whole matrix
  static constexpr float kRoundingError = 1e-4;  // of sums of floats, more than it can be

  static Rounding round(const int8_t* row, int inputs, int8_t* to) {
    const int padded = rounded_up(inputs, kLanes);
    std::vector<int8_t> from(padded), found(padded);
    std::copy_n(row, inputs, from.begin());
    int most = 0;
    for (int8_t weight : from) most = std::max(most, std::abs(int(weight)));
    float best_step = 1, least = std::numeric_limits<float>::infinity(), squares = 0;
    for (float share : {1.0f, 0.85f, 0.7f}) {  // of the step at which no weight is cut
      const float step = std::max(most * share / 7.5f, 1.0f);
      const float error = round_by(step, from, found, squares);
      if (error >= least) continue;
      least = error;
      best_step = step;
      std::copy_n(found.begin(), inputs, to);
    }
    return {best_step, std::sqrt(least) * (1 + kRoundingError) + std::sqrt(squares) * kRoundingError};
  }

  // The sum of the squares of what rounding takes from a row; `squares`: of its weights.
  static float round_by(float step, const std::vector<int8_t>& from, std::vector<int8_t>& to, float& squares) {
    const Floats least = splat(kLeastHalf), most = splat(kMostHalf);
    Floats errors{}, all{};
    for (size_t i = 0; i < from.size(); i += kLanes) {
      const Floats weights = floats(integers(&from[i]));
      const Floats halves = rounded(larger(smaller(weights * (1 / step), most), least));
      const Floats error = weights - halves * step;
      errors += error * error;
      all += weights * weights;
      store_bytes(reinterpret_cast<uint8_t*>(&to[i]), whole(halves));
    }
    squares = sum(all);
    return sum(errors);
  }

  // Of a line less its zero.
  float length(const uint8_t* bytes) const {
    const int32_t zero = int32_t(reads_.zero);
    int32_t squares = 0;
    for (int input = 0; input < matrix_.inputs; ++input) squares += (bytes[input] - zero) * (bytes[input] - zero);
    return std::sqrt(float(squares)) * (1 + kRoundingError);
  }

  // An output as `Product` gives it, to the bit.
  float score_of(const uint8_t* bytes, int output) const {
    const int8_t* row = matrix_.integers + size_t(output) * matrix_.inputs;
    const int32_t zero = int32_t(reads_.zero);
    int32_t total = 0;
    for (int input = 0; input < matrix_.inputs; ++input) total += (bytes[input] - zero) * row[input];
    return float(total) * (matrix_.scales[output] * reads_.step) + biases_[output];
  }

  Stored matrix_;
  Quantiser reads_;
  Product product_;
  float *reaches_ = nullptr, *biases_ = nullptr;
};

}  // namespace specmt
