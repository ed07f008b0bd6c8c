// Compares the best outputs that a screen finds with those of the whole product, for matrices of which one output
// stands out, all are alike, or several are the same. Prints of how many lines the screen found the best; fails where
// it found another, or an output comes to more than its bound.
#include <cstdio>
#include <random>

#include "choosing.h"

using namespace specmt;

namespace {

std::mt19937 generator(1);

int below(unsigned end) { return int(generator() % end); }

// Nearly a normal distribution's, from -1,020 to 1,020.
int spread() {
  int sum = 0;
  for (int i = 0; i < 12; ++i) sum += below(171);
  return sum - 6 * 170;
}

// Activations that are like output `like` of a matrix, or like none.
void fill(const std::vector<int8_t>& integers, int inputs, int like, const Quantiser& reads, int depth,
          uint8_t* bytes) {
  std::vector<float> values(inputs);
  for (int input = 0; input < inputs; ++input)
    values[input] = float(spread()) / 1020 + (like < 0 ? 0 : float(integers[size_t(like) * inputs + input]) / 64);
  reads.apply(values.data(), inputs, depth, bytes);
}

}  // namespace

int main() {
  Crew alone(0);
  const Crew::Call call(alone);
  for (const int inputs : {72, 512})
    for (const int kind : {0, 1, 2}) {
      const int outputs = 2900;
      std::vector<int8_t> integers(size_t(outputs) * inputs);
      for (int8_t& integer : integers) integer = int8_t(std::max(-127, std::min(127, spread() / 4)));
      if (kind == 2)  // every output stands three times
        for (int output = 0; output < outputs; ++output)
          std::copy_n(&integers[size_t(output % 900) * inputs], inputs, &integers[size_t(output) * inputs]);
      std::vector<float> scales(outputs, 0.01f), biases(outputs);
      for (float& bias : biases) bias = kind == 2 ? 0 : float(below(2001) - 1000) / 1000;
      const Stored matrix{integers.data(), scales.data(), biases.data(), outputs, inputs};
      const Quantiser reads(-2, 3);
      Arena arena;
      const Product product(arena, {matrix}, reads, kNone);
      if (!Screen::fits(matrix, reads)) return std::printf("no screen\n"), 0;
      const Screen screen(arena, matrix, reads);
      Scores scores, bounds;
      int found = 0, all = 0;
      for (const int lines : {1, 2, 6, 17, 33}) {
        auto bytes = aligned<uint8_t>(size_t(lines) * product.depth());
        for (int line = 0; line < lines; ++line)
          fill(integers, inputs, kind == 1 ? -1 : below(outputs), reads, product.depth(),
               &bytes[size_t(line) * product.depth()]);
        score_outputs(product, alone, bytes.get(), lines, scores);
        screen.bound(alone, bytes.get(), lines, bounds);
        for (int line = 0; line < lines; ++line, ++all) {
          for (int output = 0; output < outputs; ++output)
            if (scores.of(line)[output] > bounds.of(line)[output]) return std::printf("beyond its bound\n"), 1;
          const int best = screen.best(&bytes[size_t(line) * product.depth()], line, bounds);
          if (best >= 0 && best != scores.best(line).number) return std::printf("not the best\n"), 1;
          found += best >= 0;
        }
      }
      const char* kinds[] = {"one stands out", "alike", "several the same"};
      std::printf("%d inputs, %s: %d of %d\n", inputs, kinds[kind], found, all);
    }
}
