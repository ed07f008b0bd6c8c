// Sixteen floats at a time. Every operation is written lane by lane in a fixed order and, by the flags in setup.py,
// without fused multiply-add, so that results are the same bits whatever the compiler makes of it, on any processor.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace specmt {

// Vectors that are handed over in memory cost more than what is done with them.
#define SPECMT_INLINE __attribute__((always_inline)) inline

constexpr int kLanes = 16;

// The widest vectors that the processor has: compilers take wider ones apart lane by lane.
#if defined(__AVX512F__)
constexpr int kWidest = 16;
#elif defined(__AVX2__)
constexpr int kWidest = 8;
#else
constexpr int kWidest = 4;
#endif

typedef float FloatPart __attribute__((vector_size(4 * kWidest)));
typedef int32_t IntPart __attribute__((vector_size(4 * kWidest)));
typedef float EightFloats __attribute__((vector_size(32)));
typedef float FourFloats __attribute__((vector_size(16)));

template <class Part>
struct Lanes {
  static constexpr int kParts = kLanes / kWidest;
  Part parts[kParts];
};

using Floats = Lanes<FloatPart>;
using Ints = Lanes<IntPart>;

// `work` of each part, by its number.
template <class Result, class Work>
SPECMT_INLINE Result by_parts(const Work& work) {
  Result result;
  for (int i = 0; i < Result::kParts; ++i) result.parts[i] = work(i);
  return result;
}

SPECMT_INLINE Floats splat(float value) {
  return by_parts<Floats>([&](int) { return value - FloatPart{}; });
}

template <class Part>
SPECMT_INLINE Lanes<Part> operator-(Lanes<Part> a) {
  return by_parts<Lanes<Part>>([&](int i) { return -a.parts[i]; });
}

#define SPECMT_OPERATOR(sign)                                                        \
  template <class Part>                                                              \
  SPECMT_INLINE Lanes<Part> operator sign(Lanes<Part> a, Lanes<Part> b) {            \
    return by_parts<Lanes<Part>>([&](int i) { return a.parts[i] sign b.parts[i]; }); \
  }                                                                                  \
  template <class Part, class One>                                                   \
  SPECMT_INLINE Lanes<Part> operator sign(Lanes<Part> a, One b) {                    \
    return by_parts<Lanes<Part>>([&](int i) { return a.parts[i] sign b; });          \
  }                                                                                  \
  template <class Part, class One>                                                   \
  SPECMT_INLINE Lanes<Part> operator sign(One a, Lanes<Part> b) {                    \
    return by_parts<Lanes<Part>>([&](int i) { return a sign b.parts[i]; });          \
  }
SPECMT_OPERATOR(+)
SPECMT_OPERATOR(-)
SPECMT_OPERATOR(*)
SPECMT_OPERATOR(/)
#undef SPECMT_OPERATOR

SPECMT_INLINE Floats& operator+=(Floats& a, Floats b) { return a = a + b; }

SPECMT_INLINE Floats load(const float* from) {
  return by_parts<Floats>([&](int i) {
    FloatPart part;
    std::memcpy(&part, from + i * kWidest, sizeof part);
    return part;
  });
}

SPECMT_INLINE void store(float* to, Floats values) {
  for (int i = 0; i < Floats::kParts; ++i) std::memcpy(to + i * kWidest, &values.parts[i], sizeof values.parts[i]);
}

SPECMT_INLINE void store(float* to, FourFloats values) { std::memcpy(to, &values, sizeof values); }

// The same bits as another type.
template <class To, class From>
SPECMT_INLINE To same_bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

SPECMT_INLINE Floats floats(Ints values) {
  return by_parts<Floats>([&](int i) { return __builtin_convertvector(values.parts[i], FloatPart); });
}

SPECMT_INLINE Ints integers(const int8_t* from) {
  return by_parts<Ints>([&](int i) {
#if defined(__AVX512F__)
    return IntPart(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
#elif defined(__AVX2__)
    return IntPart(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + i * kWidest))));
#else
    const int8_t* four = from + i * kWidest;
    return IntPart{four[0], four[1], four[2], four[3]};
#endif
  });
}

// The lowest bytes of integers.
SPECMT_INLINE void store_bytes(uint8_t* to, Ints values) {
#if defined(__AVX512F__)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(__m512i(values.parts[0])));
#elif defined(__AVX2__)
  const __m256i mixed = _mm256_packus_epi32(__m256i(values.parts[0] & 255), __m256i(values.parts[1] & 255));
  const __m256i words = _mm256_permute4x64_epi64(mixed, 0xd8);
  const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes);
#elif defined(__aarch64__)
  const auto words = [&](int i) { return vmovn_u32(uint32x4_t(values.parts[i])); };
  const auto bytes = [&](int i) { return vmovn_u16(vcombine_u16(words(i), words(i + 1))); };
  vst1q_u8(to, vcombine_u8(bytes(0), bytes(2)));
#else
  for (int i = 0; i < kLanes; ++i) to[i] = uint8_t(values.parts[i / kWidest][i % kWidest]);
#endif
}

// Of what is no number and another, the other if it stands second.
SPECMT_INLINE Floats larger(Floats a, Floats b) {
  return by_parts<Floats>([&](int i) { return a.parts[i] > b.parts[i] ? a.parts[i] : b.parts[i]; });
}
SPECMT_INLINE Floats smaller(Floats a, Floats b) {
  return by_parts<Floats>([&](int i) { return a.parts[i] < b.parts[i] ? a.parts[i] : b.parts[i]; });
}

// The first `count` lanes of `values`, `filling` in the others.
SPECMT_INLINE Floats first(Floats values, int count, float filling) {
  alignas(64) static constexpr int32_t kNumbers[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return by_parts<Floats>([&](int i) {
    IntPart numbers;
    std::memcpy(&numbers, kNumbers + i * kWidest, sizeof numbers);
    return numbers < count ? values.parts[i] : filling - FloatPart{};
  });
}

// The four lanes that come of joining halves of the lanes with halves.
template <class Join>
SPECMT_INLINE FourFloats halved(Floats values, const Join& join) {
  EightFloats eights[2];
  std::memcpy(eights, &values, sizeof eights);
  const EightFloats eight = join(eights[0], eights[1]);
  FourFloats fours[2];
  std::memcpy(fours, &eight, sizeof fours);
  return join(fours[0], fours[1]);
}

// The sum of the lanes, halves added to halves.
SPECMT_INLINE float sum(Floats values) {
  const auto four = halved(values, [](const auto& a, const auto& b) { return a + b; });
  return (four[0] + four[2]) + (four[1] + four[3]);
}

SPECMT_INLINE float largest(Floats values) {
  const auto four = halved(values, [](const auto& a, const auto& b) { return a > b ? a : b; });
  return std::max(std::max(four[0], four[2]), std::max(four[1], four[3]));
}

// To the nearest integer, halves to even, for values of magnitude below 2^22.
SPECMT_INLINE Floats rounded(Floats values) {
  const float shift = 12582912.0f;  // 1.5 * 2^23: behind it no fraction fits
  return (values + shift) - shift;
}

// The same as integers, of which the lowest 22 bits count.
SPECMT_INLINE Ints whole(Floats values) { return same_bits<Ints>(values + 12582912.0f); }

// e to the power of each lane, to about one unit in the last place; of what is below -87, e^-87.
SPECMT_INLINE Floats exponential(Floats x) {
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
  const auto scale =
      by_parts<Ints>([&](int i) { return (__builtin_convertvector(power.parts[i], IntPart) + 127) << 23; });
  return result * same_bits<Floats>(scale);
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
  const Floats below = 1.0f - beyond;
  return x * by_parts<Floats>([&](int i) { return x.parts[i] > 0 ? below.parts[i] : beyond.parts[i]; });
}

// x times its logistic function.
inline Floats swish(Floats x) { return x * (1.0f / (exponential(-x) + 1.0f)); }

}  // namespace specmt
