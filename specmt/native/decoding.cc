// Decoding: what a caller asks for in one call, from a pass to many iterations.
#include "kernels.h"

namespace specmt {

void Network::verify(Row* const* rows, const int64_t* lengths, int count, const int64_t* tokens, int window, int beta,
                     int64_t* ids, float* log_probs) const {
  Workspace& space = workspace();
  read_window(rows, lengths, count, tokens, window, beta, ids, log_probs, space);
}

void Network::draft(Row* const* rows, const int64_t* lengths, int count, const int64_t* last_ids, int slots,
                    int lattice_width, int64_t* ids, float* scores, float* transitions) const {
  Workspace& space = workspace();
  const int rank = gate_.padded_outputs(), size = draft_output_.product.padded_outputs();
  std::vector<float> gates(size_t(count) * slots * rank);
  float* all = drafted(rows, lengths, count, last_ids, slots, gates.data(), space);
  std::vector<int> places(lattice_width);
  for (int line = 0; line < count * slots; ++line) {
    float* of_line = all + size_t(line) * size;
    int64_t* line_ids = ids + size_t(line) * lattice_width;
    best_places(of_line, size, lattice_width, space.selection, places.data());
    for (int i = 0; i < lattice_width; ++i) {
      line_ids[i] = draft_output_.id(places[i]);
      scores[size_t(line) * lattice_width + i] = of_line[places[i]];
    }
    for (int before = 0; before < lattice_width; ++before) {
      const int64_t left = line % slots ? (line_ids - lattice_width)[before] : last_ids[line / slots];
      for (int i = 0; i < lattice_width; ++i)
        transitions[(size_t(line) * lattice_width + before) * lattice_width + i] =
            transition(bigram_left_, left, bigram_right_, places[i], &gates[size_t(line) * rank]);
    }
  }
}

void Network::speculate(Row* const* rows, const int64_t* lengths, int count, const int64_t* last_ids, int slots,
                        int lattice_width, int beta, int64_t* draft, int64_t* ids, float* log_probs) const {
  Workspace& space = workspace();
  const int rank = gate_.padded_outputs(), size = draft_output_.product.padded_outputs(), window = slots + 1;
  std::vector<float> gates(size_t(count) * slots * rank);
  float* scores = drafted(rows, lengths, count, last_ids, slots, gates.data(), space);
  std::vector<int> places(lattice_width);
  std::vector<int64_t> tokens(size_t(count) * window);
  for (int row = 0; row < count; ++row) {
    tokens[size_t(row) * window] = last_ids[row];
    for (int slot = 0; slot < slots; ++slot) {
      const size_t line = size_t(row) * slots + slot;
      float* of_line = scores + line * size;
      best_places(of_line, size, lattice_width, space.selection, places.data());
      const int64_t left = tokens[size_t(row) * window + slot];
      int best = 0;
      float highest = kNone;
      for (int place : places) {
        const float gain = transition(bigram_left_, left, bigram_right_, place, &gates[line * rank]);
        if (of_line[place] + gain > highest) {
          highest = of_line[place] + gain;
          best = place;
        }
      }
      tokens[size_t(row) * window + slot + 1] = draft[line] = draft_output_.id(best);
    }
  }
  read_window(rows, lengths, count, tokens.data(), window, beta, ids, log_probs, space);
}

int Network::iterate(Row* const* rows, int64_t* lengths, int count, int64_t* last_ids, const int64_t* room, int slots,
                     int lattice_width, int beta, float tau, int64_t end_id, int iterations, int64_t* accepted,
                     int64_t* ids, float* log_probs) const {
  const int window = slots + 1;
  std::vector<int64_t> draft(size_t(count) * slots), candidates(size_t(count) * window * beta);
  std::vector<float> scores(candidates.size());
  std::vector<int64_t> emitted(count);
  for (int done = 0;;) {
    if (slots)
      speculate(rows, lengths, count, last_ids, slots, lattice_width, beta, draft.data(), candidates.data(),
                scores.data());
    else
      verify(rows, lengths, count, last_ids, window, beta, candidates.data(), scores.data());
    bool ended = false;
    for (int row = 0; row < count; ++row, ids += window, log_probs += window, ++accepted) {
      int kept = 0;
      const auto take = [&](int candidate) {
        ids[kept] = candidates[(size_t(row) * window + kept) * beta + candidate];
        log_probs[kept] = scores[(size_t(row) * window + kept) * beta + candidate];
      };
      for (; kept < slots; ++kept) {
        const size_t first = (size_t(row) * window + kept) * beta;
        const int64_t drafted = draft[size_t(row) * slots + kept];
        int candidate = 0;
        while (candidate < beta &&
               (candidates[first + candidate] != drafted || scores[first + candidate] < scores[first] - tau))
          ++candidate;
        if (candidate == beta) break;
        take(candidate);
      }
      take(0);
      *accepted = kept;
      lengths[row] += kept + 1;
      last_ids[row] = ids[kept];
      emitted[row] += kept + 1;
      ended |= emitted[row] >= room[row] || std::find(ids, ids + kept + 1, end_id) != ids + kept + 1;
    }
    if (++done == iterations || ended) return done;
  }
}

}  // namespace specmt
