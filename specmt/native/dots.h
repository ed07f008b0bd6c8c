// Sums of products of a line's 8-bit activations with packed 8-bit weights, as each build's processors add them.
//
// Weights lie in strips of as many outputs as are computed at a time; in a strip, each four inputs of all outputs lie
// together, so that they are read in the order of memory (on AVX2 alone the fours themselves are in an order of each
// strip's own). Activations are unsigned, weights signed, as the processors' instructions take them; Arm's takes both
// signed. Sums are exact, hence the same for any number of lines, on any processor.
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

#if defined(__AVX512VNNI__) || defined(SPECMT_BYTES_CLIP)
// Asks for the cache's line at an address, which may lie behind the weights.
inline void fetch(const void* address) { _mm_prefetch(static_cast<const char*>(address), _MM_HINT_T0); }
#endif

#if defined(__AVX512VNNI__)
// The weights of the lower halves of bytes and those of the upper ones, as `kHalfScale` says.
SPECMT_INLINE void unfold(__m512i halves, __m512i& lower, __m512i& upper) {
  const __m512i mask = _mm512_set1_epi8(int8_t(0xf0));
  lower = _mm512_and_si512(_mm512_slli_epi16(halves, 4), mask);
  upper = _mm512_and_si512(halves, mask);
}

// Lays `count` vectors of halves, `step` bytes apart, out as twice as many.
inline void unfold(const int8_t* halves, int count, int step, int8_t* to) {
  for (int i = 0; i < count; ++i, halves += step, to += 2 * kCacheLine) {
    fetch(halves + kUnfoldedAhead);
    __m512i lower, upper;
    unfold(_mm512_load_si512(halves), lower, upper);
    _mm512_store_si512(to, lower);
    _mm512_store_si512(to + kCacheLine, upper);
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
  constexpr int kHalves = 2 * kVectors;
  __m256i totals[kLines][kHalves];
  const __m256i* from = reinterpret_cast<const __m256i*>(corrections);
#pragma GCC unroll 4
  for (int line = 0; line < kLines; ++line)
#pragma GCC unroll 4
    for (int half = 0; half < kHalves; ++half) totals[line][half] = _mm256_load_si256(from + half);
  for (int input = 0; input < depth; input += kInputs, weights += kOutputs * kInputs) {
    __m256i spread[kLines];
#pragma GCC unroll 4
    for (int line = 0; line < kLines; ++line)
      spread[line] = _mm256_set1_epi32(four_of(bytes + size_t(line) * depth + input));
#pragma GCC unroll 4
    for (int half = 0; half < kHalves; ++half) {
      const __m256i columns = _mm256_load_si256(reinterpret_cast<const __m256i*>(weights) + half);
#pragma GCC unroll 4
      for (int line = 0; line < kLines; ++line)
        totals[line][half] = _mm256_dpbusd_avx_epi32(totals[line][half], spread[line], columns);
    }
  }
#pragma GCC unroll 4
  for (int line = 0; line < kLines; ++line)
#pragma GCC unroll 4
    for (int half = 0; half < kHalves; ++half)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums[line]) + half, totals[line][half]);
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
#endif

#ifdef SPECMT_TILES
constexpr int kDeep = 64;  // inputs of a tile

// Tiles 0 to 3 are sums of 16 outputs each, 4 and 5 have bytes, the others weights.
inline void shape_tiles(int lines) {
  struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  } shape = {};
  shape.palette = 1;
  for (int tile = 0; tile < 8; ++tile) {
    shape.row_bytes[tile] = 64;
    shape.rows[tile] = uint8_t(tile < 6 ? lines : 16);
  }
  asm volatile("" ::"m"(shape));  // all of it is read; GCC's intrinsic speaks of the first eight bytes
  _tile_loadconfig(&shape);
}

// Weights as tiles take them: `vectors` of each four inputs, or half as many of halves, a strip's four inputs apart.
// The compiler does not know that tiles read memory.
template <bool kHalved>
SPECMT_INLINE const int8_t* deep_weights(const int8_t* weights, int vectors, int8_t* unfolded) {
  if constexpr (!kHalved) return weights;
  const int pairs = vectors / 2, fours = kDeep / kInputs;
  if (vectors == kVectors)
    unfold(weights, fours * pairs, kCacheLine, unfolded);
  else
    unfold(weights, fours, kOutputs * kInputs / 2, unfolded);
  asm volatile("" ::: "memory");
  return unfolded;
}

// Of one tile of lines. Not inlined: what it reads is in memory when it is called.
template <bool kHalved>
__attribute__((noinline)) void add_up_tiled(const uint8_t* bytes, int depth, const int8_t* weights,
                                            const int32_t* corrections, Ints (*sums)[kVectors]) {
  constexpr int kBetween = kOutputs * kInputs;  // bytes from four inputs to the next
  alignas(64) int8_t unfolded[2][kDeep * kOutputs];
  _tile_loadd(0, corrections, 0);  // for all lines the same
  _tile_loadd(1, corrections + 16, 0);
  _tile_loadd(2, corrections + 32, 0);
  _tile_loadd(3, corrections + 48, 0);
  for (int input = 0; input < depth; input += kDeep, weights += kDeep * kOutputs / (kHalved ? 2 : 1)) {
    const int8_t* deep = deep_weights<kHalved>(weights, 4, unfolded[input / kDeep % 2]);
    _tile_loadd(4, bytes + input, depth);
    _tile_loadd(6, deep, kBetween);
    _tile_dpbusd(0, 4, 6);
    _tile_loadd(7, deep + 64, kBetween);
    _tile_dpbusd(1, 4, 7);
    _tile_loadd(6, deep + 128, kBetween);
    _tile_dpbusd(2, 4, 6);
    _tile_loadd(7, deep + 192, kBetween);
    _tile_dpbusd(3, 4, 7);
  }
  _tile_stored(0, &sums[0][0], sizeof *sums);
  _tile_stored(1, &sums[0][1], sizeof *sums);
  _tile_stored(2, &sums[0][2], sizeof *sums);
  _tile_stored(3, &sums[0][3], sizeof *sums);
}

// Of two tiles of lines, half of the outputs after the other: each tile of weights is read once.
template <bool kHalved>
__attribute__((noinline)) void add_up_two_tiles(const uint8_t* bytes, const uint8_t* others, int depth,
                                                const int8_t* weights, const int32_t* corrections,
                                                Ints (*sums)[kVectors], Ints (*others_sums)[kVectors]) {
  constexpr int kBetween = kOutputs * kInputs / (kHalved ? 2 : 1);
  alignas(64) int8_t unfolded[2][kDeep * kOutputs / 2];
  for (int vector = 0; vector < kVectors; vector += 2, weights += kBetween / 2, corrections += 2 * kLanes) {
    _tile_loadd(0, corrections, 0);
    _tile_loadd(1, corrections + kLanes, 0);
    _tile_loadd(2, corrections, 0);
    _tile_loadd(3, corrections + kLanes, 0);
    const int8_t* from = weights;
    for (int input = 0; input < depth; input += kDeep, from += kDeep / kInputs * kBetween) {
      const int8_t* deep = deep_weights<kHalved>(from, 2, unfolded[input / kDeep % 2]);
      _tile_loadd(4, bytes + input, depth);
      _tile_loadd(5, others + input, depth);
      _tile_loadd(6, deep, kHalved ? 128 : kBetween);
      _tile_dpbusd(0, 4, 6);
      _tile_dpbusd(2, 5, 6);
      _tile_loadd(7, deep + 64, kHalved ? 128 : kBetween);
      _tile_dpbusd(1, 4, 7);
      _tile_dpbusd(3, 5, 7);
    }
    _tile_stored(0, &sums[0][vector], sizeof *sums);
    _tile_stored(1, &sums[0][vector + 1], sizeof *sums);
    _tile_stored(2, &others_sums[0][vector], sizeof *sums);
    _tile_stored(3, &others_sums[0][vector + 1], sizeof *sums);
  }
}
#endif

// To be called when a thread has done what it was asked for: what it left in tiles would be kept for it.
inline void leave_tiles() {
#ifdef SPECMT_TILES
  _tile_release();
#endif
}

}  // namespace specmt
