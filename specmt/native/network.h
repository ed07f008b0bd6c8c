// A pair of models: verifier (encoder and decoder) and drafter, and the rows whose caches they read and write.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "choosing.h"

namespace specmt {

// Of `bundles.architecture.Architecture` what the tensors do not tell, in the order in which Python hands it over.
struct Architecture {
  int64_t width, heads, encoder_layers, decoder_layers, drafter_layers, source_vocabulary_size, tied_output,
      encoder_heads, encoder_pre_norm, decoder_pre_norm, encoder_final_norm, decoder_final_norm, scaled_embeddings,
      source_positions, target_positions, starts_from_padding, activation;
};

// Of feed-forward layers.
enum Activation : int64_t { kRelu, kGelu, kSwish };

// A bundle's tensors by name. The memory is the caller's. What the network does not pack outlives it: embeddings,
// slots, the bigram term's tables and token ids.
struct Tensors {
  std::map<std::string, Stored> matrices;
  std::map<std::string, const float*> vectors;
  std::map<std::string, const int64_t*> ids;
  std::map<std::string, Quantiser> quantisers;  // by the (first) matrix that reads the activation
};

// Keys and values of one layer for one sequence. Keys lie in blocks of 16 positions, so that the scores of 16 positions
// are one vector: keys[block][unit][position in the block]; values[position][unit].
struct KeyValues {
  std::vector<float> keys, values;

  void reserve(int positions, int width);
  // `count` positions from `position` on: of lines `stride` floats apart, whose values lie `width` floats behind their
  // keys.
  void write(int position, int count, const float* lines, size_t stride, int width);
  void copy(const KeyValues& from, int count, int width);  // its first positions
};

// The encoder's output for one sentence, as the layers of verifier and drafter read it.
struct Source {
  int length;
  std::vector<KeyValues> layers;
};

// One target sequence: caches of the verifier's layers, then of the drafter's.
struct Row {
  std::shared_ptr<const Source> source;
  std::vector<KeyValues> layers;
  int capacity = 0;
  bool drafts = false;  // whether what the drafter reads of the verifier's states is kept

  void reserve(int positions, int width);
};

// One position to be computed: it reads its row's first `visible` keys.
struct Line {
  Row* row;
  int position;
  int visible;

  bool follows(const Line& other) const { return row == other.row && position == other.position + 1; }
  bool sees_what_follows() const { return visible > position + 1; }
};

// What a line of queries attends to: the first `visible` positions.
struct Reading {
  const KeyValues* cache;
  int visible;
};

struct Norm {
  std::vector<float> weight, bias;  // padded with zeros to a line; empty: no norm
};

struct Attention {
  Norm norm;
  Quantiser reads, writes;  // of the input, and of what is projected by `out`
  Product in, out;          // `in`: queries, keys, values; where keys and values are given, queries
};

struct FeedForward {
  Norm norm;
  Quantiser reads, inner;
  Product fc1, fc2;
};

struct EncoderLayer {
  Attention self;
  FeedForward feed_forward;
};

struct DecoderLayer {
  Attention self, cross;
  FeedForward feed_forward;
};

// Embeddings of positions, a line each: all that were learned, or the first sinusoids.
struct Positions {
  std::vector<float> table;
  bool learned;
};

// Scores of the tokens that a network can say.
struct Output {
  Quantiser reads;
  Product product;
  Screen screen;                 // serves where only the best token is asked for
  const int64_t* ids = nullptr;  // of the scores' places; null: the places themselves

  int64_t id(int place) const { return ids ? ids[place] : place; }
};

// What a pass needs beside the rows; one for each thread.
struct Workspace {
  Buffer<float> x, normed, wide, attended, attention;
  Buffer<uint8_t> bytes, inner;
  std::vector<Line> lines;
  std::vector<Reading> readings;
  std::vector<int> places;
  std::vector<int64_t> best;  // tokens, and their log-probabilities
  std::vector<float> log_probs;
  Scores scores, line_scores;
};

// Which tokens of a draft are accepted: those among the verifier's `beta` best that are at most `tau` nats behind the
// best. Of the one best, log-probabilities may be left out, which takes less time.
struct Acceptance {
  int beta;
  float tau;
  bool scored;

  bool asks_for_best() const { return beta == 1 && !scored; }
};

class Network {
 public:
  // Throws std::out_of_range where a tensor is missing. `threads`: at most so many work for one caller.
  Network(const Architecture& architecture, const Tensors& tensors, int threads);

  // Callers of what follows are in a call of its crew.
  Crew& crew() const { return crew_; }

  // A row for each of `count` sources, whose ids lie one behind the other; the caller deletes it.
  void encode(const int64_t* ids, const int64_t* lengths, int count, Row** rows) const;

  // Reads `window` tokens of each row behind its first `lengths`; the best `beta` of each position, best first.
  void verify(Row* const* rows, const int64_t* lengths, int count, const int64_t* tokens, int window, int beta,
              int64_t* ids, float* log_probs) const;

  // What each of `count` tokens, the first that a new row reads, attends to of its source in a decoder layer, averaged
  // over heads: a weight for each of the source's tokens.
  void attention(Row* row, const int64_t* tokens, int count, int layer, float* weights) const;

  // Lets each row's place be taken by the row at its index, of which `lengths` tell what was read. Rows that take no
  // place are overwritten by copies of those that take several. `places`: where among `rows` those now are.
  void reorder(Row* const* rows, const int64_t* lengths, int count, const int64_t* indices, int64_t* places) const;

  // Fills `slots` behind the last verified ids: of each slot the best `lattice_width` tokens, and what each gains from
  // each token before it.
  void draft(Row* const* rows, const int64_t* lengths, int count, const int64_t* last_ids, int slots, int lattice_width,
             int64_t* ids, float* scores, float* transitions) const;

  // Drafts, walks from left to right, and verifies the last id and the draft.
  void speculate(Row* const* rows, const int64_t* lengths, int count, const int64_t* last_ids, int slots,
                 int lattice_width, int beta, int64_t* draft, int64_t* ids, float* log_probs) const;

  // Iterations until `ends` rows have ended (end-of-sentence, or no room) or `iterations` are done; rows that ended
  // take no part in those that follow, nor do rows that had no room before. Each drafts `slots` tokens (0: plain
  // steps), accepts some, and emits them and the verifier's next token. `lengths` move along. For each row: in how many
  // iterations it took part, and how many tokens each accepted (`iterations` places); one behind the other, all ids
  // that it emitted and their log-probabilities (`slots` + 1 times the places; NaN where they are left out).
  void iterate(Row* const* rows, int64_t* lengths, int count, const int64_t* last_ids, const int64_t* room, int slots,
               int lattice_width, const Acceptance& acceptance, int64_t end_id, int iterations, int ends,
               int64_t* taken, int64_t* accepted, int64_t* ids, float* log_probs) const;

 private:
  int heads_of_encoder() const { return shape_.encoder_heads ? shape_.encoder_heads : shape_.heads; }
  Positions position_table(const Tensors& tensors, const std::string& name, bool learned) const;
  void position(const Positions& positions, int place, float* line) const;
  void embed_source(int64_t id, int place, float* line) const;
  void embed_target(int64_t id, int place, float* line) const;
  void read(const float* x, int lines, const Norm& norm, bool normed, const Quantiser& quantiser, uint8_t* bytes,
            Workspace& space) const;
  void add(const Product& product, const uint8_t* bytes, int lines, const Norm& norm, bool pre_norm, float* x) const;
  void feed_forward(const FeedForward& layer, int lines, bool pre_norm, int64_t activation, float* x,
                    Workspace& space) const;
  void self_attention(const DecoderLayer& layer, int index, const std::vector<Line>& lines, int first, bool pre_norm,
                      float* x, Workspace& space) const;
  const float* cross_queries(const DecoderLayer& layer, const float* x, int lines, bool pre_norm,
                             Workspace& space) const;
  void decoder_layer(const DecoderLayer& layer, int index, const std::vector<Line>& lines, int first, bool pre_norm,
                     int64_t activation, float* x, Workspace& space) const;
  void read_window(Row* const* rows, const int64_t* lengths, int count, const int64_t* tokens, int window,
                   bool screened, Workspace& space) const;
  void candidates(int line, int beta, int64_t* ids, float* log_probs, Workspace& space) const;
  int64_t best_token(int line, Workspace& space) const;
  int check(int line, const int64_t* tokens, int slots, const Acceptance& acceptance, int64_t* ids, float* log_probs,
            Workspace& space) const;
  void drafted(Row* const* rows, const int64_t* lengths, int count, const int64_t* last_ids, int slots, float* gates,
               Workspace& space) const;
  void draft_tokens(Row* const* rows, const int64_t* lengths, int count, const int64_t* last_ids, int slots,
                    int lattice_width, int64_t* tokens, Workspace& space) const;

  Architecture shape_;
  Arena arena_;  // of the products' weights
  int stride_;   // floats from one line to the next
  float embedding_scale_;
  std::vector<double> frequencies_;  // of sinusoids
  Positions source_positions_, target_positions_;
  Stored embeddings_, source_embeddings_, slots_, bigram_left_, bigram_right_;
  std::vector<EncoderLayer> encoder_;
  std::vector<DecoderLayer> decoder_, drafter_;
  Norm encoder_norm_, decoder_norm_, drafter_norm_;
  Quantiser reads_memory_, reads_states_, reads_gate_;
  Product memory_, prefix_, gate_;
  Output output_, draft_output_;
  mutable Crew crew_;
};

// The buffers of this thread.
Workspace& workspace();

}  // namespace specmt
