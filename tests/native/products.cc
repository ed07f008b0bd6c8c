// Prints a digest of products' floats for matrices and lines of many sizes, to be compared between builds and
// processors. Everything is drawn from one generator, whose numbers the standard fixes.
#include "products.h"

#include <cstdio>
#include <random>
#include <vector>

using namespace specmt;

int main() {
  std::mt19937 random(1);
  const auto below = [&](unsigned end) { return int(random() % end); };
  Crew alone(0);
  const Crew::Call call(alone);
  for (const int inputs : {1, 4, 63, 64, 200, 1024})
    for (const int outputs : {1, 64, 130})
      for (const float low : {0.0f, -0.1f, -1.0f, -9.0f}) {  // zeros from 0 to 230
        std::vector<int8_t> integers(size_t(outputs) * inputs);
        const bool halves = below(3) == 0;  // integers of 4 bits, which some builds read two at a time
        for (int8_t& integer : integers)
          integer = halves ? int8_t(below(16) - 8) : below(4) ? int8_t(below(256) - 128) : below(2) ? 127 : -128;
        std::vector<float> scales(outputs), biases(outputs);
        for (float& scale : scales) scale = float(1 + below(1000)) / 65536;
        for (float& bias : biases) bias = float(below(2001) - 1000) / 256;
        const Quantiser quantiser(low, 1);
        Arena arena;
        const Product product(arena, {{integers.data(), scales.data(), biases.data(), outputs, inputs}}, quantiser);
        for (const int lines : {1, 2, 3, 4, 5, 6, 7, 17, 33}) {
          auto bytes = aligned<uint8_t>(size_t(lines) * product.depth());
          for (int line = 0; line < lines; ++line) {
            std::vector<float> values(inputs);
            for (float& value : values) value = below(3) ? low + (1 - low) * float(below(4096)) / 4096 : 0;
            quantiser.apply(values.data(), inputs, product.depth(), &bytes[size_t(line) * product.depth()]);
          }
          const size_t count = size_t(lines) * product.padded_outputs();
          auto found = aligned<float>(count);
          product.write(alone, bytes.get(), lines, found.get());
          uint64_t digest = 14695981039346656037u;  // FNV-1a
          for (size_t i = 0; i < count; ++i) {
            uint32_t bits;
            std::memcpy(&bits, &found[i], sizeof bits);
            digest = (digest ^ bits) * 1099511628211u;
          }
          std::printf("%d inputs, %d outputs, from %g, %d lines: %016llx\n", inputs, outputs, double(low), lines,
                      static_cast<unsigned long long>(digest));
        }
      }
}
