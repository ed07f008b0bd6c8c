// Sums of products of a line's 8-bit activations with packed 8-bit weights, as each build's processors add them.
//
// Weights lie in groups of 64 outputs; in a group, each four inputs of as many outputs as are computed at a time lie
// together, so that they are read in the order of memory. Activations are unsigned, weights signed: the operands of the
// processors' instructions. Sums are exact, hence the same for any number of lines, on any processor.
#pragma once

#include <vector>

#include "vectors.h"

#if defined(__AMX_INT8__) && defined(__AVX512VNNI__)
#define SPECMT_TILES  // the processor's matrix unit
#endif

#if defined(__AVX2__) && !defined(__AVX512VNNI__) && !defined(__AVXVNNI__)
#define SPECMT_BYTES_CLIP  // no dot product; what multiplies bytes clips sums of two at 16 bits
#endif

namespace specmt {

constexpr int kInputs = 4;               // inputs that a dot product adds at once
constexpr int kGroup = 64;               // outputs of a group
constexpr int kParts = kGroup / kLanes;  // vectors of outputs of a group

// Of a product: outputs that are computed at a time, and at most for so many lines. Bytes of weights that are asked for
// early: a product of few lines waits for them.
#if defined(__AVX512VNNI__)
constexpr int kOutputs = 64, kTile = 6, kAhead = 1024;
#elif defined(__AVXVNNI__)
constexpr int kOutputs = 32, kTile = 3;
#elif defined(__AVX2__)
constexpr int kOutputs = 16, kTile = 4, kAhead = 8192;
#else
constexpr int kOutputs = 16, kTile = 2;
#endif

#ifdef SPECMT_TILES
constexpr int kTiledLines = 16;  // at most, of a tile
constexpr int kFewestTiled = 7;  // lines; for fewer, vectors are as fast
#endif

#ifdef SPECMT_BYTES_CLIP

// Pairs of activations below 128 do not clip, whatever the weights. So lines are read less the lowest of 128 successive
// values around their zero, within those; what the few others lie outside by, in fours of which one does, is added
// apart.
constexpr int kWithin = 127;

inline int lowest(float zero) { return std::clamp(int(zero) - 64, 0, 255 - kWithin); }

struct Beyond {
  int input;  // the first of four
  int16_t by[kInputs];
};

struct Lines {
  std::vector<uint8_t> within;
  std::vector<Beyond> beyond;  // one line's behind the other's
  std::vector<size_t> ends;    // of each line's, behind a zero

  const uint8_t* bytes() const { return within.data(); }
};

// Of each line `depth` bytes, of which the last from `inputs` on count for nothing. Until the same thread's next call.
inline const Lines& readable(const uint8_t* bytes, int lines, int depth, int inputs, int low) {
  thread_local Lines read;
  read.within.resize(std::max(read.within.size(), size_t(lines) * depth));
  read.beyond.clear();
  read.ends.assign(1, 0);
  const __m256i least = _mm256_set1_epi8(char(low)), most = _mm256_set1_epi8(kWithin);
  for (int line = 0; line < lines; ++line) {
    for (int input = 0; input < depth; input += 32) {
      const size_t place = size_t(line) * depth + input;
      const __m256i given = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes + place));
      const __m256i within = _mm256_min_epu8(_mm256_subs_epu8(given, least), most);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(&read.within[place]), within);
      const __m256i fours = _mm256_cmpeq_epi32(_mm256_add_epi8(within, least), given);
      int missed = ~_mm256_movemask_ps(_mm256_castsi256_ps(fours)) & 0xff;
      for (int first = input; missed && first < inputs; first += kInputs, missed >>= 1) {
        if (!(missed & 1)) continue;
        Beyond beyond{first, {}};
        for (int i = 0; i < kInputs; ++i)
          beyond.by[i] = int16_t(bytes[place + first - input + i] - low - read.within[place + first - input + i]);
        read.beyond.push_back(beyond);
      }
    }
    read.ends.push_back(read.beyond.size());
  }
  return read;
}

// Adds to a line's sums of a group what four of its inputs lie beyond.
inline void add_beyond(const Beyond& beyond, int depth, const int8_t* weights, Ints (&sums)[kParts]) {
  int64_t four;
  std::memcpy(&four, beyond.by, sizeof four);
  const __m256i spread = _mm256_set1_epi64x(four);
  for (int part = 0; part < kParts; ++part) {
    const int8_t* from = weights + size_t(part) * kOutputs * depth + size_t(beyond.input) * kOutputs;
    for (int half = 0; half < 2; ++half, from += 32) {
      const __m128i* bytes = reinterpret_cast<const __m128i*>(from);
      const __m256i low = _mm256_madd_epi16(spread, _mm256_cvtepi8_epi16(_mm_load_si128(bytes)));
      const __m256i high = _mm256_madd_epi16(spread, _mm256_cvtepi8_epi16(_mm_load_si128(bytes + 1)));
      const __m256i totals = _mm256_permute4x64_epi64(_mm256_hadd_epi32(low, high), 0xd8);  // in order of outputs
      __m256i* to = reinterpret_cast<__m256i*>(&sums[part]) + half;
      _mm256_storeu_si256(to, _mm256_add_epi32(_mm256_loadu_si256(to), totals));
    }
  }
}

#else

inline int lowest(float) { return 0; }

struct Lines {
  const uint8_t* within;

  const uint8_t* bytes() const { return within; }
};

inline Lines readable(const uint8_t* bytes, int, int, int, int) { return {bytes}; }

#endif

// Four activations of a line, as instructions take them.
inline int32_t four_of(const uint8_t* bytes) {
  int32_t four;
  std::memcpy(&four, bytes, sizeof four);
  return four;
}

#if defined(__AVX512VNNI__) || defined(SPECMT_BYTES_CLIP)
// Asks for the cache's line at an address, which may lie behind the weights.
inline void fetch(const int8_t* weights) { _mm_prefetch(reinterpret_cast<const char*>(weights), _MM_HINT_T0); }
#endif

// Not inlined: there, all sums stay in registers.
template <int kLines>
__attribute__((noinline)) void add_up(const uint8_t* bytes, int depth, const int8_t* weights,
                                      const int32_t* corrections, Ints (&sums)[kLines][kParts]) {
#if defined(__AVX512VNNI__)
  __m512i totals[kLines][kParts];
#pragma GCC unroll 8
  for (int line = 0; line < kLines; ++line)
#pragma GCC unroll 4
    for (int part = 0; part < kParts; ++part) totals[line][part] = _mm512_load_si512(corrections + part * kLanes);
  for (int input = 0; input < depth; input += kInputs, weights += kOutputs * kInputs) {
#pragma GCC unroll 4
    for (int part = 0; part < kParts; ++part) fetch(weights + kAhead + part * 64);
    __m512i columns[kParts];
#pragma GCC unroll 4
    for (int part = 0; part < kParts; ++part) columns[part] = _mm512_load_si512(weights + part * 64);
#pragma GCC unroll 8
    for (int line = 0; line < kLines; ++line) {
      const __m512i spread = _mm512_set1_epi32(four_of(bytes + size_t(line) * depth + input));
#pragma GCC unroll 4
      for (int part = 0; part < kParts; ++part)  // the intrinsic would have the compiler copy every total
        asm("vpdpbusd %2, %1, %0" : "+v"(totals[line][part]) : "v"(spread), "v"(columns[part]));
    }
  }
#pragma GCC unroll 8
  for (int line = 0; line < kLines; ++line)
#pragma GCC unroll 4
    for (int part = 0; part < kParts; ++part) _mm512_storeu_si512(&sums[line][part], totals[line][part]);
#elif defined(__AVXVNNI__)
  for (int half = 0; half < 2; ++half) {
    __m256i totals[kLines][kParts];
#pragma GCC unroll 4
    for (int line = 0; line < kLines; ++line)
#pragma GCC unroll 4
      for (int part = 0; part < kParts; ++part) {
        const int32_t* from = corrections + (half * kParts + part) * 8;
        totals[line][part] = _mm256_load_si256(reinterpret_cast<const __m256i*>(from));
      }
    for (int input = 0; input < depth; input += kInputs, weights += kOutputs * kInputs) {
      __m256i spread[kLines];
#pragma GCC unroll 4
      for (int line = 0; line < kLines; ++line) {
        spread[line] = _mm256_set1_epi32(four_of(bytes + size_t(line) * depth + input));
      }
#pragma GCC unroll 4
      for (int part = 0; part < kParts; ++part) {
        const __m256i columns = _mm256_load_si256(reinterpret_cast<const __m256i*>(weights + part * 32));
#pragma GCC unroll 4
        for (int line = 0; line < kLines; ++line)
          totals[line][part] = _mm256_dpbusd_avx_epi32(totals[line][part], spread[line], columns);
      }
    }
    __m256i* to = reinterpret_cast<__m256i*>(sums) + half * kParts;
#pragma GCC unroll 4
    for (int line = 0; line < kLines; ++line, to += 2 * kParts)
#pragma GCC unroll 4
      for (int part = 0; part < kParts; ++part) _mm256_storeu_si256(to + part, totals[line][part]);
  }
#elif defined(SPECMT_BYTES_CLIP)
  const __m256i ones = _mm256_set1_epi16(1);
  for (int part = 0; part < kParts; ++part) {
    __m256i totals[kLines][2];
    const __m256i* from = reinterpret_cast<const __m256i*>(corrections + part * kLanes);
#pragma GCC unroll 4
    for (int line = 0; line < kLines; ++line)
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) totals[line][half] = _mm256_load_si256(from + half);
    for (int input = 0; input < depth; input += kInputs, weights += kOutputs * kInputs) {
      fetch(weights + kAhead);
#pragma GCC unroll 4
      for (int line = 0; line < kLines; ++line) {
        const __m256i spread = _mm256_set1_epi32(four_of(bytes + size_t(line) * depth + input));
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
          const __m256i column = _mm256_load_si256(reinterpret_cast<const __m256i*>(weights + half * 32));
          const __m256i pairs = _mm256_maddubs_epi16(spread, column);
          totals[line][half] = _mm256_add_epi32(totals[line][half], _mm256_madd_epi16(pairs, ones));
        }
      }
    }
#pragma GCC unroll 4
    for (int line = 0; line < kLines; ++line)
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half)
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(&sums[line][part]) + half, totals[line][half]);
  }
#else
  for (int line = 0; line < kLines; ++line) std::memcpy(sums[line], corrections, sizeof sums[line]);
  for (int part = 0; part < kParts; ++part)
    for (int input = 0; input < depth; input += kInputs, weights += kOutputs * kInputs)
      for (int line = 0; line < kLines; ++line) {
        const uint8_t* four = bytes + size_t(line) * depth + input;
        const int8_t* from = weights;
        int32_t* totals = reinterpret_cast<int32_t*>(&sums[line][part]);
        for (int output = 0; output < kOutputs; ++output, from += kInputs)
          totals[output] += four[0] * from[0] + four[1] * from[1] + four[2] * from[2] + four[3] * from[3];
      }
#endif
}

#ifdef SPECMT_TILES
// Tiles 0 to 3 are sums of 16 outputs each, 4 has bytes, the others weights.
inline void shape_tiles(int lines) {
  struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  } shape = {};
  shape.palette = 1;
  for (int tile = 0; tile < 8; ++tile) {
    shape.row_bytes[tile] = 64;
    shape.rows[tile] = uint8_t(tile < 5 ? lines : 16);
  }
  asm volatile("" ::"m"(shape));  // all of it is read; GCC's intrinsic speaks of the first eight bytes
  _tile_loadconfig(&shape);
}

// Not inlined: what it reads is in memory when it is called.
__attribute__((noinline)) inline void add_up_tiled(const uint8_t* bytes, int depth, const int8_t* weights,
                                                   const int32_t* corrections, Ints (&sums)[kTiledLines][kParts]) {
  constexpr int kDeep = 64, kBetween = kOutputs * kInputs;  // inputs of a tile; bytes from four inputs to the next
  _tile_loadd(0, corrections, 0);                           // for all lines the same
  _tile_loadd(1, corrections + 16, 0);
  _tile_loadd(2, corrections + 32, 0);
  _tile_loadd(3, corrections + 48, 0);
  for (int input = 0; input < depth; input += kDeep, weights += kDeep * kOutputs) {
    _tile_loadd(4, bytes + input, depth);
    _tile_loadd(5, weights, kBetween);
    _tile_dpbusd(0, 4, 5);
    _tile_loadd(6, weights + 64, kBetween);
    _tile_dpbusd(1, 4, 6);
    _tile_loadd(7, weights + 128, kBetween);
    _tile_dpbusd(2, 4, 7);
    _tile_loadd(5, weights + 192, kBetween);
    _tile_dpbusd(3, 4, 5);
  }
  _tile_stored(0, &sums[0][0], sizeof sums[0]);
  _tile_stored(1, &sums[0][1], sizeof sums[0]);
  _tile_stored(2, &sums[0][2], sizeof sums[0]);
  _tile_stored(3, &sums[0][3], sizeof sums[0]);
}
#endif

// To be called when a thread has done what it was asked for: what it left in tiles would be kept for it.
inline void leave_tiles() {
#ifdef SPECMT_TILES
  _tile_release();
#endif
}

}  // namespace specmt
