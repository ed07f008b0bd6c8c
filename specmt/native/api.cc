// What Python calls, through ctypes. Functions give 0, or what went wrong: see `specmt/engines/native_library.py`.
#include <exception>
#include <new>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "network.h"

using namespace specmt;

namespace {

enum Result { kDone = 0, kNoMemory = 1, kFailed = 2 };

thread_local std::string last_error;

template <class Work>
int guarded(const Work& work) {
  struct Leave {
    ~Leave() { leave_tiles(); }
  } leave;
  try {
    work();
    return kDone;
  } catch (const std::bad_alloc&) {
    return kNoMemory;
  } catch (const std::exception& error) {
    try {
      last_error = error.what();
    } catch (const std::bad_alloc&) {
      return kNoMemory;
    }
    return kFailed;
  }
}

// What a network is asked for, in a call of its crew.
template <class Work>
int called(const Network* network, const Work& work) {
  return guarded([&] {
    const Crew::Call call(network->crew());
    work();
  });
}

#if defined(__x86_64__)
// Whether this process may use the processor's tiles, for which Linux wants to be asked.
bool has_tiles() {
#if defined(__linux__)
  constexpr unsigned kTiles = 1 << 24, kBytes = 1 << 25;  // AMX-TILE, AMX-INT8
  constexpr long kAsk = 0x1023, kTileData = 18;           // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & kTiles) && (d & kBytes) &&
         syscall(SYS_arch_prctl, kAsk, kTileData) == 0;
#else
  return false;
#endif
}
#endif

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// Which builds this processor can run: 1 any, plus 2 with AVX2, plus 4 with AVX-VNNI, plus 8 with AVX-512 VNNI, plus 16
// with AMX as well, which the process is then allowed to use, whatever build it takes. On Arm, 1 and 32 with its dot
// product.
int specmt_processor_levels() {
  int levels = 1;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2")) {
    levels |= 2;
    constexpr unsigned kAvxVnni = 1 << 4;  // compilers before AVX-VNNI have no name for it
    unsigned a, b, c, d;
    if (__get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & kAvxVnni)) levels |= 4;
  }
  if (__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    levels |= has_tiles() ? 8 + 16 : 8;
#elif defined(__aarch64__) && defined(__linux__)
  if (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) levels |= 32;
#endif
  return levels;
}

// The digest of the sources that this was compiled from.
const char* specmt_sources() { return SPECMT_SOURCES; }

const char* specmt_error() { return last_error.c_str(); }

Tensors* specmt_tensors_new() { return new (std::nothrow) Tensors; }
void specmt_tensors_delete(Tensors* tensors) { delete tensors; }

int specmt_tensors_matrix(Tensors* tensors, const char* name, const int8_t* integers, const float* scales, int outputs,
                          int inputs) {
  return guarded([&] { tensors->matrices[name] = {integers, scales, nullptr, outputs, inputs}; });
}
int specmt_tensors_vector(Tensors* tensors, const char* name, const float* values) {
  return guarded([&] { tensors->vectors[name] = values; });
}
int specmt_tensors_ids(Tensors* tensors, const char* name, const int64_t* values) {
  return guarded([&] { tensors->ids[name] = values; });
}
int specmt_tensors_range(Tensors* tensors, const char* name, float low, float high) {
  return guarded([&] { tensors->quantisers[name] = Quantiser(low, high); });
}

int specmt_network_new(const Architecture* architecture, const Tensors* tensors, int threads, Network** network) {
  return guarded([&] { *network = new Network(*architecture, *tensors, threads); });
}
void specmt_network_delete(Network* network) { delete network; }

void specmt_row_delete(Row* row) { delete row; }
int specmt_row_copy(const Row* row, Row** copy) {
  return guarded([&] { *copy = new Row(*row); });
}

int specmt_reorder(const Network* network, Row* const* rows, const int64_t* lengths, int count, const int64_t* indices,
                   int64_t* places) {
  return guarded([&] { network->reorder(rows, lengths, count, indices, places); });
}

int specmt_encode(const Network* network, const int64_t* ids, const int64_t* lengths, int count, Row** rows) {
  return called(network, [&] { network->encode(ids, lengths, count, rows); });
}
int specmt_verify(const Network* network, Row* const* rows, const int64_t* lengths, int count, const int64_t* tokens,
                  int window, int beta, int64_t* ids, float* log_probs) {
  return called(network, [&] { network->verify(rows, lengths, count, tokens, window, beta, ids, log_probs); });
}
int specmt_attention(const Network* network, Row* row, const int64_t* tokens, int count, int layer, float* weights) {
  return called(network, [&] { network->attention(row, tokens, count, layer, weights); });
}
int specmt_draft(const Network* network, Row* const* rows, const int64_t* lengths, int count, const int64_t* last_ids,
                 int slots, int lattice_width, int64_t* ids, float* scores, float* transitions) {
  return called(
      network, [&] { network->draft(rows, lengths, count, last_ids, slots, lattice_width, ids, scores, transitions); });
}
int specmt_speculate(const Network* network, Row* const* rows, const int64_t* lengths, int count,
                     const int64_t* last_ids, int slots, int lattice_width, int beta, int64_t* draft, int64_t* ids,
                     float* log_probs) {
  return called(network, [&] {
    network->speculate(rows, lengths, count, last_ids, slots, lattice_width, beta, draft, ids, log_probs);
  });
}
int specmt_iterate(const Network* network, Row* const* rows, int64_t* lengths, int count, const int64_t* last_ids,
                   const int64_t* room, int slots, int lattice_width, int beta, float tau, int scored, int64_t end_id,
                   int iterations, int ends, int64_t* taken, int64_t* accepted, int64_t* ids, float* log_probs) {
  return called(network, [&] {
    network->iterate(rows, lengths, count, last_ids, room, slots, lattice_width, {beta, tau, scored != 0}, end_id,
                     iterations, ends, taken, accepted, ids, log_probs);
  });
}

}  // extern "C"
#pragma GCC visibility pop
