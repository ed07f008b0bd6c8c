// Sixteen floats at a time. Every operation is written lane by lane in a fixed order and without fused multiply-add, so
// that results are the same bits whatever instructions the compiler makes of it, on any processor.
#pragma once

#include <cstdint>
#include <cstring>

namespace specmt {

constexpr int kLanes = 16;

typedef float Floats __attribute__((vector_size(64), aligned(4)));
typedef int32_t Ints __attribute__((vector_size(64), aligned(4)));
typedef uint8_t Bytes __attribute__((vector_size(16), aligned(1)));

inline Floats load(const float* from) {
  Floats values;
  std::memcpy(&values, from, sizeof values);
  return values;
}

inline void store(float* to, Floats values) { std::memcpy(to, &values, sizeof values); }

inline Floats splat(float value) {
  return Floats{value, value, value, value, value, value, value, value,
                value, value, value, value, value, value, value, value};
}

inline Floats larger(Floats a, Floats b) { return a > b ? a : b; }
inline Floats smaller(Floats a, Floats b) { return a < b ? a : b; }

inline const Ints kNumbers = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// The first `count` lanes of `values`, `filling` in the others.
inline Floats first(Floats values, int count, float filling) { return kNumbers < count ? values : splat(filling); }

// The sum of the lanes, halves added to halves.
inline float sum(Floats values) {
  float lanes[kLanes];
  store(lanes, values);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  return lanes[0];
}

inline float largest(Floats values) {
  float lanes[kLanes];
  store(lanes, values);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int lane = 0; lane < half; ++lane)
      lanes[lane] = lanes[lane] > lanes[lane + half] ? lanes[lane] : lanes[lane + half];
  return lanes[0];
}

// To the nearest integer, halves to even, for values of magnitude below 2^22.
inline Floats rounded(Floats values) {
  const float shift = 12582912.0f;  // 1.5 * 2^23: behind it no fraction fits
  return (values + shift) - shift;
}

// e to the power of each lane, to about one unit in the last place; of what is below -87, e^-87.
inline Floats exponential(Floats x) {
  x = larger(smaller(x, splat(88.0f)), splat(-87.0f));
  const Floats power = rounded(x * 1.44269504088896341f);
  const Floats rest = (x - power * 0.693359375f) - power * -2.12194440e-4f;
  // Cephes' polynomial for e^rest, |rest| <= ln(2) / 2.
  Floats result = splat(1.9875691500e-4f);
  result = result * rest + 1.3981999507e-3f;
  result = result * rest + 8.3334519073e-3f;
  result = result * rest + 4.1665795894e-2f;
  result = result * rest + 1.6666665459e-1f;
  result = result * rest + 5.0000001201e-1f;
  result = result * rest * rest + rest + 1.0f;
  const Ints exponent = (__builtin_convertvector(power, Ints) + 127) << 23;
  Floats scale;
  std::memcpy(&scale, &exponent, sizeof scale);
  return result * scale;
}

// x times the share of a normal distribution that lies below x, to about 2e-7. Abramowitz and Stegun, 7.1.26.
inline Floats gelu(Floats x) {
  const Floats distance = larger(x, -x) * 0.70710678118654752f;
  const Floats t = 1.0f / (distance * 0.3275911f + 1.0f);
  Floats beyond = t * 1.061405429f - 1.453152027f;
  beyond = beyond * t + 1.421413741f;
  beyond = beyond * t - 0.284496736f;
  beyond = beyond * t + 0.254829592f;
  beyond = beyond * t * exponential(-distance * distance) * 0.5f;
  return x * (x > Floats{} ? 1.0f - beyond : beyond);
}

}  // namespace specmt
