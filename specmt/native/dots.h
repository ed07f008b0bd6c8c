// Sums of products of a line's 8-bit activations with packed 8-bit weights, as each build's processors add them.
//
// Weights lie in strips of as many outputs as are computed at a time; in a strip, each four inputs of all outputs lie
// together, so that they are read in the order of memory (on AVX2 alone the fours of weights that have a byte each are
// in an order of each strip's own). Activations are unsigned, weights signed, as the processors' instructions take
// them; Arm's takes both signed. Sums are exact, hence the same for any number of lines, on any processor.
#pragma once

#include <type_traits>

#include "clipping.h"
#include "packing.h"

namespace specmt {

// Four activations of a line, as instructions take them.
inline int32_t four_of(const uint8_t* bytes) {
  int32_t four;
  std::memcpy(&four, bytes, sizeof four);
  return four;
}

#if defined(__AVX2__)
// Asks for the cache's line at an address, which may lie behind the weights.
inline void fetch(const void* address) { _mm_prefetch(static_cast<const char*>(address), _MM_HINT_T0); }
#endif

#if defined(__AVX512VNNI__)
typedef __m512i Bytes;
#elif defined(__AVX2__)
typedef __m256i Bytes;
#endif

// The weights of the lower halves of bytes and those of the upper ones, as `kHalfScale` says.
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
SPECMT_INLINE void unfold(Bytes halves, Bytes& lower, Bytes& upper) {
  typedef uint16_t Words __attribute__((vector_size(sizeof(Bytes))));
  const Words words = Words(halves), mask = Words{} + uint16_t(0xf0f0);
  lower = Bytes((words << 4) & mask);
  upper = Bytes(words & mask);
}
#elif defined(SPECMT_BYTES_CLIP)
SPECMT_INLINE void unfold(Bytes halves, Bytes& lower, Bytes& upper) {
  const Bytes weights = _mm256_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1,  //
                                         0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
  const Bytes mask = _mm256_set1_epi8(15);
  lower = _mm256_shuffle_epi8(weights, _mm256_and_si256(halves, mask));
  upper = _mm256_shuffle_epi8(weights, _mm256_and_si256(_mm256_srli_epi16(halves, 4), mask));
}
#endif

#if defined(__AVX2__)
// Lays `count` vectors of halves, `step` bytes apart, out as twice as many.
inline void unfold(const int8_t* halves, int count, int step, int8_t* to) {
  Bytes* whole = reinterpret_cast<Bytes*>(to);
  for (int i = 0; i < count; ++i, halves += step, whole += 2) {
    fetch(halves + kLaidOutAhead);
    unfold(*reinterpret_cast<const Bytes*>(halves), whole[0], whole[1]);
  }
}
#endif

// The sums of a strip. Not inlined: there, all stay in registers.
template <int kLines, bool kHalved = false>
__attribute__((noinline)) void add_up(const uint8_t* bytes, int depth, const int8_t* weights,
                                      [[maybe_unused]] const Order& order, const int32_t* corrections,
                                      Ints (&sums)[kLines][kVectors]) {
#if defined(__AVX512VNNI__)
  __m512i totals[kLines][kVectors];
#pragma GCC unroll 8
  for (int line = 0; line < kLines; ++line)
#pragma GCC unroll 4
    for (int vector = 0; vector < kVectors; ++vector)
      totals[line][vector] = _mm512_load_si512(corrections + vector * kLanes);
  for (int input = 0; input < depth; input += kInputs) {
    __m512i columns[kVectors];
#pragma GCC unroll 4
    for (int vector = 0; vector < kVectors; vector += kHalved ? 2 : 1, weights += kCacheLine) {
      fetch(weights + kAhead);
      columns[vector] = _mm512_load_si512(weights);
      if constexpr (kHalved) unfold(columns[vector], columns[vector], columns[vector + 1]);
    }
#pragma GCC unroll 8
    for (int line = 0; line < kLines; ++line) {
      const __m512i spread = _mm512_set1_epi32(four_of(bytes + size_t(line) * depth + input));
#pragma GCC unroll 4
      for (int vector = 0; vector < kVectors; ++vector)  // the intrinsic would have the compiler copy every total
        asm("vpdpbusd %2, %1, %0" : "+v"(totals[line][vector]) : "v"(spread), "v"(columns[vector]));
    }
  }
#pragma GCC unroll 8
  for (int line = 0; line < kLines; ++line)
#pragma GCC unroll 4
    for (int vector = 0; vector < kVectors; ++vector) _mm512_storeu_si512(&sums[line][vector], totals[line][vector]);
#elif defined(__AVXVNNI__)
  constexpr int kParts = 2 * kVectors;
  __m256i totals[kLines][kParts];
  const __m256i* from = reinterpret_cast<const __m256i*>(corrections);
#pragma GCC unroll 4
  for (int line = 0; line < kLines; ++line)
#pragma GCC unroll 4
    for (int part = 0; part < kParts; ++part) totals[line][part] = _mm256_load_si256(from + part);
  for (int input = 0; input < depth; input += kInputs) {
    __m256i spread[kLines];
#pragma GCC unroll 4
    for (int line = 0; line < kLines; ++line)
      spread[line] = _mm256_set1_epi32(four_of(bytes + size_t(line) * depth + input));
#pragma GCC unroll 4
    for (int part = 0; part < kParts; part += 2, weights += kHalved ? sizeof(Bytes) : 2 * sizeof(Bytes)) {
      const Bytes* read = reinterpret_cast<const Bytes*>(weights);
      Bytes columns[2] = {read[0], kHalved ? read[0] : read[1]};
      if constexpr (kHalved) unfold(read[0], columns[0], columns[1]);
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i)
#pragma GCC unroll 4
        for (int line = 0; line < kLines; ++line)
          totals[line][part + i] = _mm256_dpbusd_avx_epi32(totals[line][part + i], spread[line], columns[i]);
    }
  }
#pragma GCC unroll 4
  for (int line = 0; line < kLines; ++line)
#pragma GCC unroll 4
    for (int part = 0; part < kParts; ++part)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums[line]) + part, totals[line][part]);
#elif defined(SPECMT_BYTES_CLIP)
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i totals[kLines][2];
  const __m256i* from = reinterpret_cast<const __m256i*>(corrections);
#pragma GCC unroll 4
  for (int line = 0; line < kLines; ++line)
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) totals[line][half] = _mm256_load_si256(from + half);
  const uint16_t *inputs = order.inputs, *end = inputs + depth / kInputs;
  // Fours of inputs that fit together, of which the products are added within 16 bits; then those that are single.
  for (const uint16_t* paired = inputs + 2 * order.pairs; inputs < paired; inputs += 2, weights += 128) {
    fetch(weights + kAhead);
    fetch(weights + kAhead + 64);
    __m256i columns[2][2];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
      columns[i / 2][i % 2] = _mm256_load_si256(reinterpret_cast<const __m256i*>(weights) + i);
#pragma GCC unroll 4
    for (int line = 0; line < kLines; ++line) {
      const uint8_t* of_line = bytes + size_t(line) * depth;
      const __m256i first = _mm256_set1_epi32(four_of(of_line + inputs[0]));
      const __m256i second = _mm256_set1_epi32(four_of(of_line + inputs[1]));
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const __m256i fours = _mm256_add_epi16(_mm256_maddubs_epi16(first, columns[0][half]),
                                               _mm256_maddubs_epi16(second, columns[1][half]));
        totals[line][half] = _mm256_add_epi32(totals[line][half], _mm256_madd_epi16(fours, ones));
      }
    }
  }
  for (; inputs < end; ++inputs, weights += 64) {
#pragma GCC unroll 4
    for (int line = 0; line < kLines; ++line) {
      const __m256i spread = _mm256_set1_epi32(four_of(bytes + size_t(line) * depth + *inputs));
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const __m256i column = _mm256_load_si256(reinterpret_cast<const __m256i*>(weights) + half);
        const __m256i pairs = _mm256_maddubs_epi16(spread, column);
        totals[line][half] = _mm256_add_epi32(totals[line][half], _mm256_madd_epi16(pairs, ones));
      }
    }
  }
#pragma GCC unroll 4
  for (int line = 0; line < kLines; ++line)
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums[line]) + half, totals[line][half]);
#elif defined(SPECMT_SIGNED)
  constexpr int kQuads = 4 * kVectors;  // of outputs
  int32x4_t totals[kLines][kQuads];
#pragma GCC unroll 4
  for (int line = 0; line < kLines; ++line)
#pragma GCC unroll 8
    for (int quad = 0; quad < kQuads; ++quad) totals[line][quad] = vld1q_s32(corrections + quad * 4);
  for (int input = 0; input < depth; input += 16) {
    int8x16_t read[kLines];  // four fours each
#pragma GCC unroll 4
    for (int line = 0; line < kLines; ++line)
      read[line] = vreinterpretq_s8_u8(vld1q_u8(bytes + size_t(line) * depth + input));
    const auto add = [&](auto four) {
#pragma GCC unroll 8
      for (int quad = 0; quad < kQuads; ++quad) {
        const int8x16_t columns = vld1q_s8(weights + quad * 16);
#pragma GCC unroll 4
        for (int line = 0; line < kLines; ++line)
          totals[line][quad] = vdotq_laneq_s32(totals[line][quad], columns, read[line], decltype(four)::value);
      }
      weights += kOutputs * kInputs;
    };
    add(std::integral_constant<int, 0>());
    add(std::integral_constant<int, 1>());
    add(std::integral_constant<int, 2>());
    add(std::integral_constant<int, 3>());
  }
#pragma GCC unroll 4
  for (int line = 0; line < kLines; ++line)
#pragma GCC unroll 8
    for (int quad = 0; quad < kQuads; ++quad)
      vst1q_s32(reinterpret_cast<int32_t*>(sums[line]) + quad * 4, totals[line][quad]);
#else
  for (int line = 0; line < kLines; ++line) std::memcpy(sums[line], corrections, sizeof sums[line]);
  for (int input = 0; input < depth; input += kInputs, weights += kOutputs * kInputs)
    for (int line = 0; line < kLines; ++line) {
      const uint8_t* four = bytes + size_t(line) * depth + input;
      const int8_t* from = weights;
      int32_t* totals = reinterpret_cast<int32_t*>(sums[line]);
      for (int output = 0; output < kOutputs; ++output, from += kInputs)
        totals[output] += four[0] * from[0] + four[1] * from[1] + four[2] * from[2] + four[3] * from[3];
    }
#endif
}

#ifdef SPECMT_BYTES_CLIP
// The same, of a line of which few fours are active.
__attribute__((noinline)) inline void add_up_active(const uint8_t* bytes, const Active& active, const int8_t* weights,
                                                    const Order& order, const int32_t* corrections,
                                                    Ints (&sums)[kVectors]) {
  const __m256i ones = _mm256_set1_epi16(1);
  const __m256i* from = reinterpret_cast<const __m256i*>(corrections);
  __m256i totals[2] = {_mm256_load_si256(from), _mm256_load_si256(from + 1)};
  const auto pairs = [&](uint16_t four, int half) {
    const int8_t* columns = weights + size_t(order.places[four]) * kInputs * kOutputs;
    return _mm256_maddubs_epi16(_mm256_set1_epi32(four_of(bytes + size_t(four) * kInputs)),
                                _mm256_load_si256(reinterpret_cast<const __m256i*>(columns) + half));
  };
  for (const uint16_t* four = active.small; four < active.others; four += 2)
    for (int half = 0; half < 2; ++half) {
      const __m256i fours = _mm256_add_epi16(pairs(four[0], half), pairs(four[1], half));
      totals[half] = _mm256_add_epi32(totals[half], _mm256_madd_epi16(fours, ones));
    }
  for (const uint16_t* four = active.others; four < active.end; ++four)
    for (int half = 0; half < 2; ++half)
      totals[half] = _mm256_add_epi32(totals[half], _mm256_madd_epi16(pairs(*four, half), ones));
  std::memcpy(sums, totals, sizeof totals);
}

// Fours of inputs whose products with weights of 4 bits add up within 16 bits: 8 * 2 * 255 * 8 < 2^15.
constexpr int kFoursWithin = 8;

// The sums of a strip of halves, laid out or not. What is added within 16 bits stays in registers, the totals of many
// lines do not.
template <int kLines, bool kLaidOut>
__attribute__((noinline)) void add_up_halves(const uint8_t* bytes, int depth, const int8_t* weights,
                                             const int32_t* corrections, Ints (&sums)[kLines][kVectors]) {
  const __m256i ones = _mm256_set1_epi16(1);
  const __m256i* from = reinterpret_cast<const __m256i*>(corrections);
  __m256i totals[kLines][2];
#pragma GCC unroll 8
  for (int line = 0; line < kLines; ++line)
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) totals[line][half] = _mm256_load_si256(from + half);
  for (int input = 0; input < depth; input += kFoursWithin * kInputs) {
    __m256i within[kLines][2];
#pragma GCC unroll 8
    for (int four = 0; four < kFoursWithin; ++four, weights += kLaidOut ? 2 * sizeof(Bytes) : sizeof(Bytes)) {
      const Bytes* read = reinterpret_cast<const Bytes*>(weights);
      Bytes columns[2] = {read[0], kLaidOut ? read[1] : read[0]};
      if constexpr (!kLaidOut) {
        if (four % 2 == 0) fetch(weights + kAhead);
        unfold(read[0], columns[0], columns[1]);
      }
#pragma GCC unroll 8
      for (int line = 0; line < kLines; ++line) {
        const __m256i spread = _mm256_set1_epi32(four_of(bytes + size_t(line) * depth + input + four * kInputs));
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
          const __m256i products = _mm256_maddubs_epi16(spread, columns[half]);
          if (four == 0)
            within[line][half] = products;
          else  // the intrinsic would have the compiler copy every sum
            asm("vpaddw %1, %0, %0" : "+x"(within[line][half]) : "x"(products));
        }
      }
    }
#pragma GCC unroll 8
    for (int line = 0; line < kLines; ++line)
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half)
        totals[line][half] = _mm256_add_epi32(totals[line][half], _mm256_madd_epi16(within[line][half], ones));
  }
#pragma GCC unroll 8
  for (int line = 0; line < kLines; ++line)
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums[line]) + half, totals[line][half]);
}

// The same of a line of which few fours are active.
__attribute__((noinline)) inline void add_up_active_halves(const uint8_t* bytes, const Active& active,
                                                           const int8_t* weights, const int32_t* corrections,
                                                           Ints (&sums)[kVectors]) {
  const __m256i ones = _mm256_set1_epi16(1);
  const __m256i* from = reinterpret_cast<const __m256i*>(corrections);
  __m256i totals[2] = {_mm256_load_si256(from), _mm256_load_si256(from + 1)};
  for (const uint16_t* four = active.small; four < active.end;) {
    const uint16_t* last = std::min(four + kFoursWithin, active.end);
    __m256i within[2] = {};
    for (; four < last; ++four) {
      Bytes columns[2];
      unfold(reinterpret_cast<const Bytes*>(weights)[*four], columns[0], columns[1]);
      const __m256i spread = _mm256_set1_epi32(four_of(bytes + size_t(*four) * kInputs));
      for (int half = 0; half < 2; ++half)
        within[half] = _mm256_add_epi16(within[half], _mm256_maddubs_epi16(spread, columns[half]));
    }
    for (int half = 0; half < 2; ++half)
      totals[half] = _mm256_add_epi32(totals[half], _mm256_madd_epi16(within[half], ones));
  }
  std::memcpy(sums, totals, sizeof totals);
}
#endif

}  // namespace specmt
