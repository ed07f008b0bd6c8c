// How a product's weights lie in memory: what each build's processors add at once.
#pragma once

#include "vectors.h"

#if defined(__AMX_INT8__) && defined(__AVX512VNNI__)
#define SPECMT_TILES  // the processor's matrix unit
#endif

#if defined(__AVX2__) && !defined(__AVX512VNNI__) && !defined(__AVXVNNI__)
#define SPECMT_BYTES_CLIP  // no dot product; what multiplies bytes clips sums of two at 16 bits
#endif

#if defined(__ARM_FEATURE_DOTPROD)
#define SPECMT_SIGNED  // its dot product's bytes are both signed
#endif

namespace specmt {

constexpr int kInputs = 4;  // inputs that a dot product adds at once
constexpr int kGroup = 64;  // outputs are filled up to a multiple of it

// Outputs that are computed at a time, a strip; the most lines for which they are at once, and those if each weight has
// a byte; how many bytes ahead weights are asked for, as a product of few lines waits for them.
#if defined(__AVX512VNNI__)
constexpr int kOutputs = 64, kMostLines = 6, kMostWhole = 6, kAhead = 1024;
#elif defined(__AVXVNNI__)
constexpr int kOutputs = 32, kMostLines = 3, kMostWhole = 3;
#elif defined(SPECMT_SIGNED)
constexpr int kOutputs = 32, kMostLines = 3, kMostWhole = 3;
#elif defined(__AVX2__)
constexpr int kOutputs = 16, kMostLines = 6, kMostWhole = 4, kAhead = 8192;
#else
constexpr int kOutputs = 16, kMostLines = 2, kMostWhole = 2;
#endif

constexpr int kVectors = kOutputs / kLanes;  // of outputs of a strip

// Where lines come in so many parts or more, a strip's halves are laid out once for all of them, a byte each; how many
// bytes ahead they are asked for.
#if defined(SPECMT_BYTES_CLIP)
constexpr int kPartsLaidOut = 3, kLaidOutAhead = 8192;
#else
constexpr int kPartsLaidOut = 2, kLaidOutAhead = 4096;
#endif

// Whether weights of 4 bits lie two in a byte: those of as many outputs as the widest vector has lanes in the lower
// halves, those of as many others in the upper. A half is read as so many times its weight: where it stands in a byte,
// unless products of bytes clip.
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
constexpr bool kHalves = true;
constexpr int kHalfScale = 16;
#elif defined(SPECMT_BYTES_CLIP)
constexpr bool kHalves = true;
constexpr int kHalfScale = 1;
#else
constexpr bool kHalves = false;
constexpr int kHalfScale = 1;
#endif
constexpr int kLeastHalf = -8, kMostHalf = 7;  // that 4 bits hold

#ifdef SPECMT_TILES
constexpr int kTiledLines = 16;  // at most, of a tile
constexpr int kFewestTiled = 6;  // lines; for fewer, vectors are as fast, and faster beside other work
#endif

}  // namespace specmt
