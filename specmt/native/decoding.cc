// Decoding: what a caller asks for in one call, from a pass to many iterations.
#include "kernels.h"

namespace specmt {

constexpr int64_t kNoToken = -1;

void Network::verify(Row* const* rows, const int64_t* lengths, int count, const int64_t* tokens, int window, int beta,
                     int64_t* ids, float* log_probs) const {
  Workspace& space = workspace();
  read_window(rows, lengths, count, tokens, window, false, space);
  for (int line = 0; line < count * window; ++line, ids += beta, log_probs += beta)
    candidates(line, beta, ids, log_probs, space);
}

void Network::reorder(Row* const* rows, const int64_t* lengths, int count, const int64_t* indices,
                      int64_t* places) const {
  const int width = int(shape_.width);
  std::vector<int> takers(count);
  for (int place = 0; place < count; ++place) ++takers.at(indices[place]);
  std::vector<bool> placed(count);
  for (int place = 0, spare = 0; place < count; ++place) {
    const int64_t index = indices[place];
    places[place] = index;
    if (!placed[index]) {
      placed[index] = true;
      continue;
    }
    while (takers[spare]) ++spare;
    const Row& from = *rows[index];
    Row& to = *rows[spare];
    to.source = from.source;
    to.drafts = from.drafts;
    to.reserve(int(lengths[index]), width);
    const size_t layers = from.drafts ? from.layers.size() : decoder_.size();
    for (size_t layer = 0; layer < layers; ++layer)
      to.layers[layer].copy(from.layers[layer], int(lengths[index]), width);
    places[place] = spare++;
  }
}

void Network::draft(Row* const* rows, const int64_t* lengths, int count, const int64_t* last_ids, int slots,
                    int lattice_width, int64_t* ids, float* scores, float* transitions) const {
  Workspace& space = workspace();
  const int rank = gate_.padded_outputs();
  std::vector<float> gates(size_t(count) * slots * rank);
  Transition bigram;
  drafted(rows, lengths, count, last_ids, slots, gates.data(), space);
  space.places.resize(lattice_width);
  for (int line = 0; line < count * slots; ++line) {
    int64_t* line_ids = ids + size_t(line) * lattice_width;
    best_places(space.scores, line, lattice_width, space.places.data());
    for (int i = 0; i < lattice_width; ++i) {
      line_ids[i] = draft_output_.id(space.places[i]);
      scores[size_t(line) * lattice_width + i] = space.scores.of(line)[space.places[i]];
    }
    for (int before = 0; before < lattice_width; ++before) {
      bigram.follow(bigram_left_, line % slots ? (line_ids - lattice_width)[before] : last_ids[line / slots]);
      for (int i = 0; i < lattice_width; ++i)
        transitions[(size_t(line) * lattice_width + before) * lattice_width + i] =
            bigram.to(bigram_right_, space.places[i], gates.data() + size_t(line) * rank);
    }
  }
}

// Writes each row's last id and, chosen from left to right, a token for each slot.
void Network::draft_tokens(Row* const* rows, const int64_t* lengths, int count, const int64_t* last_ids, int slots,
                           int lattice_width, int64_t* tokens, Workspace& space) const {
  const int rank = gate_.padded_outputs();
  std::vector<float> gates(size_t(count) * slots * rank);
  Transition bigram;
  drafted(rows, lengths, count, last_ids, slots, gates.data(), space);
  space.places.resize(lattice_width);
  for (int row = 0, line = 0; row < count; ++row) {
    *tokens = last_ids[row];
    for (int slot = 0; slot < slots; ++slot, ++line, ++tokens) {
      best_places(space.scores, line, lattice_width, space.places.data());
      bigram.follow(bigram_left_, *tokens);
      int best = 0;
      float highest = kNone;
      for (int place : space.places) {
        const float gained = bigram.to(bigram_right_, place, gates.data() + size_t(line) * rank);
        const float total = space.scores.of(line)[place] + gained;
        if (total > highest) {
          highest = total;
          best = place;
        }
      }
      tokens[1] = draft_output_.id(best);
    }
    ++tokens;
  }
}

void Network::speculate(Row* const* rows, const int64_t* lengths, int count, const int64_t* last_ids, int slots,
                        int lattice_width, int beta, int64_t* draft, int64_t* ids, float* log_probs) const {
  Workspace& space = workspace();
  const int window = slots + 1;
  std::vector<int64_t> tokens(size_t(count) * window);
  draft_tokens(rows, lengths, count, last_ids, slots, lattice_width, tokens.data(), space);
  for (int row = 0; row < count; ++row)
    std::copy_n(&tokens[size_t(row) * window + 1], slots, draft + size_t(row) * slots);
  verify(rows, lengths, count, tokens.data(), window, beta, ids, log_probs);
}

// What the verifier says behind the window's tokens that begins at `line`, until it is not what was drafted; how many
// of the draft were accepted.
int Network::check(int line, const int64_t* tokens, int slots, const Acceptance& acceptance, int64_t* ids,
                   float* log_probs, Workspace& space) const {
  const int beta = acceptance.beta;
  std::vector<int64_t>& best = space.best;
  std::vector<float>& scores = space.log_probs;
  best.resize(beta);
  scores.assign(beta, std::numeric_limits<float>::quiet_NaN());
  for (int kept = 0;; ++kept) {
    if (acceptance.asks_for_best())
      best[0] = best_token(line + kept, space);
    else
      candidates(line + kept, beta, best.data(), scores.data(), space);
    const int64_t drafted = kept < slots ? tokens[kept + 1] : kNoToken;
    int choice = 0;
    while (choice < beta && (best[choice] != drafted || scores[choice] < scores[0] - acceptance.tau)) ++choice;
    const bool verified = choice < beta;
    if (!verified) choice = 0;
    ids[kept] = best[choice];
    log_probs[kept] = scores[choice];
    if (!verified) return kept;
  }
}

void Network::iterate(Row* const* rows, int64_t* lengths, int count, const int64_t* last_ids, const int64_t* room,
                      int slots, int lattice_width, const Acceptance& acceptance, int64_t end_id, int iterations,
                      int ends, int64_t* taken, int64_t* accepted, int64_t* ids, float* log_probs) const {
  Workspace& space = workspace();
  const int window = slots + 1;
  // Of the rows that have room and have not ended: their places among all, and what a pass reads of them.
  std::vector<int> places;
  std::vector<Row*> going;
  std::vector<int64_t> before, last;
  for (int row = 0; row < count; ++row) {
    if (room[row] <= 0) continue;
    places.push_back(row);
    going.push_back(rows[row]);
    before.push_back(lengths[row]);
    last.push_back(last_ids[row]);
  }
  const int begun = int(going.size());
  std::vector<int64_t> tokens(size_t(count) * window), emitted(count);
  std::fill(taken, taken + count, 0);
  for (int done = 0; done < iterations && !going.empty() && begun - int(going.size()) < ends; ++done) {
    const int batch = int(going.size());
    if (slots)
      draft_tokens(going.data(), before.data(), batch, last.data(), slots, lattice_width, tokens.data(), space);
    else
      tokens.assign(last.begin(), last.end());
    read_window(going.data(), before.data(), batch, tokens.data(), window, acceptance.asks_for_best(), space);
    int staying = 0;
    for (int i = 0; i < batch; ++i) {
      const int row = places[i];
      const size_t first = size_t(row) * iterations * window + emitted[row];
      const int kept =
          check(i * window, &tokens[size_t(i) * window], slots, acceptance, ids + first, log_probs + first, space);
      accepted[size_t(row) * iterations + taken[row]++] = kept;
      emitted[row] += kept + 1;
      lengths[row] += kept + 1;
      const int64_t *begin = ids + first, *end = begin + kept + 1;
      if (emitted[row] >= room[row] || std::find(begin, end, end_id) != end) continue;
      places[staying] = row;
      going[staying] = going[i];
      before[staying] = lengths[row];
      last[staying++] = end[-1];
    }
    places.resize(staying);
    going.resize(staying);
    before.resize(staying);
    last.resize(staying);
  }
}

}  // namespace specmt
