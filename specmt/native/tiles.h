// Sums of products as the processor's matrix unit (AMX) adds them: tiles of lines with tiles of weights.
#pragma once

#include "dots.h"

namespace specmt {

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
