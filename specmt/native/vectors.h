// Sixteen floats at a time. Every operation is written lane by lane in a fixed order and without fused multiply-add, so
// that results are the same bits whatever instructions the compiler makes of it, on any processor.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace specmt {

constexpr int kLanes = 16;

typedef float Floats __attribute__((vector_size(64), aligned(4)));
typedef int32_t Ints __attribute__((vector_size(64), aligned(4)));
typedef float EightFloats __attribute__((vector_size(32), aligned(4)));
typedef float FourFloats __attribute__((vector_size(16), aligned(4)));
typedef int32_t EightInts __attribute__((vector_size(32), aligned(4)));
typedef int32_t FourInts __attribute__((vector_size(16), aligned(4)));
typedef int8_t SignedBytes __attribute__((vector_size(16), aligned(1)));
typedef uint8_t Bytes __attribute__((vector_size(16), aligned(1)));

inline Floats load(const float* from) {
  Floats values;
  std::memcpy(&values, from, sizeof values);
  return values;
}

template <class Values>
inline void store(float* to, Values values) {
  std::memcpy(to, &values, sizeof values);
}

inline Floats splat(float value) {
  return Floats{value, value, value, value, value, value, value, value,
                value, value, value, value, value, value, value, value};
}

inline Ints integers(const int8_t* from) {
  SignedBytes bytes;
  std::memcpy(&bytes, from, sizeof bytes);
  return __builtin_convertvector(bytes, Ints);
}

inline Ints splat(int value) { return Ints{} + value; }

inline Floats larger(Floats a, Floats b) { return a > b ? a : b; }
inline Floats smaller(Floats a, Floats b) { return a < b ? a : b; }

inline const Ints kNumbers = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// The first `count` lanes of `values`, `filling` in the others.
inline Floats first(Floats values, int count, float filling) { return kNumbers < count ? values : splat(filling); }

// The four lanes that come of joining halves of the lanes with halves.
template <class Four, class Eight, class All, class Join>
inline Four halved(All values, const Join& join) {
  Eight eights[2];
  std::memcpy(eights, &values, sizeof eights);
  const Eight eight = join(eights[0], eights[1]);
  Four fours[2];
  std::memcpy(fours, &eight, sizeof fours);
  return join(fours[0], fours[1]);
}

// The sum of the lanes, halves added to halves.
inline float sum(Floats values) {
  const auto four = halved<FourFloats, EightFloats>(values, [](const auto& a, const auto& b) { return a + b; });
  return (four[0] + four[2]) + (four[1] + four[3]);
}

inline float largest(Floats values) {
  const auto four = halved<FourFloats, EightFloats>(values, [](const auto& a, const auto& b) { return a > b ? a : b; });
  return std::max(std::max(four[0], four[2]), std::max(four[1], four[3]));
}

inline int smallest(Ints values) {
  const auto four = halved<FourInts, EightInts>(values, [](const auto& a, const auto& b) { return a < b ? a : b; });
  return std::min(std::min(four[0], four[2]), std::min(four[1], four[3]));
}

// To the nearest integer, halves to even, for values of magnitude below 2^22.
inline Floats rounded(Floats values) {
  const float shift = 12582912.0f;  // 1.5 * 2^23: behind it no fraction fits
  return (values + shift) - shift;
}

// The same as integers, of which the lowest 22 bits count.
inline Ints whole(Floats values) {
  const Floats shifted = values + 12582912.0f;
  Ints integers;
  std::memcpy(&integers, &shifted, sizeof integers);
  return integers;
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
