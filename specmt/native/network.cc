// The passes of both models.
#include "kernels.h"

namespace specmt {

// fairseq's ids.
constexpr int64_t kPadding = 1;
constexpr int64_t kEndOfSentence = 2;
constexpr int kFirstPosition = 2;  // positions count from the padding's id

Workspace& workspace() {
  thread_local Workspace space;
  return space;
}

// Sinusoids as fairseq computes them, or what was learned. Behind a learned table its last line stands again: windows
// reach there, but no token that counts does.
void Network::position(const Positions& positions, int place, float* line) const {
  const int tabled = int(positions.table.size() / stride_);
  if (place < tabled || positions.learned) {
    std::copy_n(&positions.table[size_t(std::min(place, tabled - 1)) * stride_], stride_, line);
    return;
  }
  const int half = int(frequencies_.size());
  for (int i = 0; i < half; ++i) {
    const double angle = (place + kFirstPosition) * frequencies_[i];
    line[i] = float(std::sin(angle));
    line[half + i] = float(std::cos(angle));
  }
  std::fill(line + 2 * half, line + stride_, 0.0f);
}

void Network::embed_source(int64_t id, int place, float* line) const {
  position(source_positions_, place, line);
  add_row(source_embeddings_, id, embedding_scale_, line);
}

// End-of-sentence is read at the start only.
void Network::embed_target(int64_t id, int place, float* line) const {
  position(target_positions_, place, line);
  add_row(embeddings_, shape_.starts_from_padding && id == kEndOfSentence ? kPadding : id, embedding_scale_, line);
}

// What is read of the residual stream, in 8 bits; `normed`: behind a norm.
void Network::read(const float* x, int lines, const Norm& norm, bool normed, const Quantiser& quantiser, uint8_t* bytes,
                   Workspace& space) const {
  float* result = space.normed.get(stride_);
  for (int line = 0; line < lines; ++line) {
    const float* from = x + size_t(line) * stride_;
    if (normed) {
      normalise(from, int(shape_.width), stride_, norm, result);
      from = result;
    }
    quantiser.apply(from, int(shape_.width), stride_, bytes + size_t(line) * stride_);
  }
}

// Adds a sublayer's last product to the residual stream.
void Network::add(const Product& product, const uint8_t* bytes, int lines, const Norm& norm, bool pre_norm,
                  float* x) const {
  product.run(crew_, bytes, lines, [&](int line, int output, Floats values) {
    float* to = x + size_t(line) * stride_ + output;
    store(to, load(to) + values);
  });
  if (!pre_norm)
    for (int line = 0; line < lines; ++line)
      normalise(x + size_t(line) * stride_, int(shape_.width), stride_, norm, x + size_t(line) * stride_);
}

void Network::feed_forward(const FeedForward& layer, int lines, bool pre_norm, int64_t activation, float* x,
                           Workspace& space) const {
  uint8_t* bytes = space.bytes.get(size_t(lines) * stride_);
  read(x, lines, layer.norm, pre_norm, layer.reads, bytes, space);
  const int inner = layer.fc2.depth();
  uint8_t* inner_bytes = space.inner.get(size_t(lines) * inner);
  const Floats inverse = splat(1 / layer.inner.step), least = splat(-layer.inner.zero);
  const Floats most = splat(255 - layer.inner.zero);
  layer.fc1.run(crew_, bytes, lines, [&](int line, int output, Floats values) {
    values = activation == kRelu ? larger(values, Floats{}) : activation == kGelu ? gelu(values) : swish(values);
    layer.inner.put(values, inverse, least, most, inner_bytes + size_t(line) * inner + output);
  });
  add(layer.fc2, inner_bytes, lines, layer.norm, pre_norm, x);
}

void Network::encode(const int64_t* ids, const int64_t* lengths, int count, Row** rows) const {
  Workspace& space = workspace();
  const int width = int(shape_.width), heads = heads_of_encoder();
  const bool pre_norm = shape_.encoder_pre_norm;
  int lines = 0, longest = 0;
  for (int row = 0; row < count; ++row) {
    if (lengths[row] < 1) throw std::invalid_argument("a source of no tokens");
    lines += int(lengths[row]);
    longest = std::max(longest, int(lengths[row]));
  }
  float* x = space.x.get(size_t(lines) * stride_);
  for (int row = 0, line = 0; row < count; ++row)
    for (int place = 0; place < lengths[row]; ++place, ++line)
      embed_source(ids[line], place, x + size_t(line) * stride_);

  KeyValues cache;
  cache.reserve(rounded_up(longest, kLanes), width);
  for (const EncoderLayer& layer : encoder_) {
    uint8_t* bytes = space.bytes.get(size_t(lines) * stride_);
    read(x, lines, layer.self.norm, pre_norm, layer.self.reads, bytes, space);
    const int span = layer.self.in.padded_outputs();
    float* wide = space.wide.get(size_t(lines) * span);
    layer.self.in.write(crew_, bytes, lines, wide);
    for (int row = 0, begin = 0; row < count; begin += int(lengths[row++])) {
      const int length = int(lengths[row]);
      const float* from = wide + size_t(begin) * span;
      cache.write(0, length, from + width, span, width);
      space.readings.assign(length, {&cache, length});
      attend(space.readings.data(), length, from, span, heads, width, layer.self.writes, stride_,
             bytes + size_t(begin) * stride_, space);
    }
    add(layer.self.out, bytes, lines, layer.self.norm, pre_norm, x);
    feed_forward(layer.feed_forward, lines, pre_norm, shape_.activation, x, space);
  }

  uint8_t* bytes = space.bytes.get(size_t(lines) * stride_);
  read(x, lines, encoder_norm_, shape_.encoder_final_norm, reads_memory_, bytes, space);
  const int layers = int(decoder_.size() + drafter_.size()), span = memory_.padded_outputs();
  float* wide = space.wide.get(size_t(lines) * span);
  memory_.write(crew_, bytes, lines, wide);
  std::vector<std::unique_ptr<Row>> made;
  for (int row = 0, begin = 0; row < count; begin += int(lengths[row++])) {
    const int length = int(lengths[row]);
    auto source = std::make_shared<Source>(Source{length, std::vector<KeyValues>(layers)});
    for (int index = 0; index < layers; ++index) {
      KeyValues& to = source->layers[index];
      to.reserve(rounded_up(length, kLanes), width);
      to.write(0, length, wide + size_t(begin) * span + size_t(2 * index) * width, span, width);
    }
    made.push_back(std::make_unique<Row>(Row{std::move(source), std::vector<KeyValues>(layers)}));
  }
  for (int row = 0; row < count; ++row) rows[row] = made[row].release();
}

// A layer's first sublayer over `lines`, of which only those from `first` on are needed behind it; the others give keys
// and values.
void Network::self_attention(const DecoderLayer& layer, int index, const std::vector<Line>& lines, int first,
                             bool pre_norm, float* x, Workspace& space) const {
  const int width = int(shape_.width), heads = int(shape_.heads), all = int(lines.size()), kept = all - first;
  uint8_t* bytes = space.bytes.get(size_t(all) * stride_);
  read(x, all, layer.self.norm, pre_norm, layer.self.reads, bytes, space);
  const int span = layer.self.in.padded_outputs();
  float* wide = space.wide.get(size_t(all) * span);
  layer.self.in.write(crew_, bytes, all, wide);
  space.readings.clear();
  for (const Line& line : lines) space.readings.push_back({&line.row->layers[index], line.visible});
  const auto attend_from = [&](int begin, int end) {
    attend(&space.readings[begin], end - begin, wide + size_t(begin) * span, span, heads, width, layer.self.writes,
           stride_, bytes + size_t(begin - first) * stride_, space);
  };
  // A row that sees no line behind its own attends while what it just wrote is near.
  const bool in_turn = !lines.front().sees_what_follows();
  for (int begin = 0, end; begin < all; begin = end) {
    const Line& at = lines[begin];
    for (end = begin + 1; end < all && lines[end].follows(lines[end - 1]);) ++end;
    at.row->layers[index].write(at.position, end - begin, wide + size_t(begin) * span + width, span, width);
    if (in_turn) attend_from(begin, end);
  }
  if (!in_turn) attend_from(first, all);
  add(layer.self.out, bytes, kept, layer.self.norm, pre_norm, x + size_t(first) * stride_);
}

// What lines ask of the source, `layer.cross.in.padded_outputs()` floats each.
const float* Network::cross_queries(const DecoderLayer& layer, const float* x, int lines, bool pre_norm,
                                    Workspace& space) const {
  uint8_t* bytes = space.bytes.get(size_t(lines) * stride_);
  read(x, lines, layer.cross.norm, pre_norm, layer.cross.reads, bytes, space);
  float* queries = space.wide.get(size_t(lines) * layer.cross.in.padded_outputs());
  layer.cross.in.write(crew_, bytes, lines, queries);
  return queries;
}

// A layer over `lines`, of which only those from `first` on are needed behind it.
void Network::decoder_layer(const DecoderLayer& layer, int index, const std::vector<Line>& lines, int first,
                            bool pre_norm, int64_t activation, float* x, Workspace& space) const {
  const int width = int(shape_.width), heads = int(shape_.heads), all = int(lines.size()), kept = all - first;
  self_attention(layer, index, lines, first, pre_norm, x, space);
  float* kept_x = x + size_t(first) * stride_;
  const float* queries = cross_queries(layer, kept_x, kept, pre_norm, space);
  space.readings.clear();
  for (int line = first; line < all; ++line) {
    const Source& source = *lines[line].row->source;
    space.readings.push_back({&source.layers[index], source.length});
  }
  uint8_t* bytes = space.bytes.get(size_t(kept) * stride_);
  attend(space.readings.data(), kept, queries, layer.cross.in.padded_outputs(), heads, width, layer.cross.writes,
         stride_, bytes, space);
  add(layer.cross.out, bytes, kept, layer.cross.norm, pre_norm, kept_x);
  feed_forward(layer.feed_forward, kept, pre_norm, activation, kept_x, space);
}

// The verifier's scores behind each token of the windows; `screened`: what they may come to, where that serves.
void Network::read_window(Row* const* rows, const int64_t* lengths, int count, const int64_t* tokens, int window,
                          bool screened, Workspace& space) const {
  const int width = int(shape_.width), total = count * window, layers = int(decoder_.size());
  const bool pre_norm = shape_.decoder_pre_norm;
  if (!total) throw std::invalid_argument("a window of no tokens");
  float* x = space.x.get(size_t(total) * stride_);
  space.lines.clear();
  bool drafts = false;
  for (int row = 0; row < count; ++row) {
    rows[row]->reserve(int(lengths[row]) + window, width);
    drafts |= rows[row]->drafts;
    for (int i = 0; i < window; ++i) {
      const int place = int(lengths[row]) + i, line = row * window + i;
      space.lines.push_back({rows[row], place, place + 1});
      embed_target(tokens[line], place, x + size_t(line) * stride_);
    }
  }
  for (int index = 0; index < layers; ++index)
    decoder_layer(decoder_[index], index, space.lines, 0, pre_norm, shape_.activation, x, space);
  uint8_t* bytes = space.bytes.get(size_t(total) * stride_);
  read(x, total, decoder_norm_, shape_.decoder_final_norm, reads_states_, bytes, space);
  if (drafts) {
    const int span = prefix_.padded_outputs();
    float* wide = space.wide.get(size_t(total) * span);
    prefix_.write(crew_, bytes, total, wide);
    for (int row = 0; row < count; ++row)
      for (int index = 0; index < int(drafter_.size()); ++index)
        rows[row]->layers[layers + index].write(
            int(lengths[row]), window, wide + size_t(row) * window * span + size_t(2 * index) * width, span, width);
  }
  if (screened && output_.screen.serves())
    output_.screen.bound(crew_, bytes, total, space.scores);
  else
    score_outputs(output_.product, crew_, bytes, total, space.scores);
}

void Network::attention(Row* row, const int64_t* tokens, int count, int layer, float* weights) const {
  Workspace& space = workspace();
  const int width = int(shape_.width), heads = int(shape_.heads), units = width / heads;
  const bool pre_norm = shape_.decoder_pre_norm;
  if (!count) throw std::invalid_argument("a window of no tokens");
  float* x = space.x.get(size_t(count) * stride_);
  row->reserve(count, width);
  space.lines.clear();
  for (int place = 0; place < count; ++place) {
    space.lines.push_back({row, place, place + 1});
    embed_target(tokens[place], place, x + size_t(place) * stride_);
  }
  for (int index = 0; index < layer; ++index)
    decoder_layer(decoder_[index], index, space.lines, 0, pre_norm, shape_.activation, x, space);
  self_attention(decoder_[layer], layer, space.lines, 0, pre_norm, x, space);
  const float* queries = cross_queries(decoder_[layer], x, count, pre_norm, space);
  const int span = decoder_[layer].cross.in.padded_outputs(), length = row->source->length;
  const Reading reading{&row->source->layers[layer], length};
  const int room = rounded_up(length, kLanes);
  float* scores = space.attention.get(room);
  std::fill_n(weights, size_t(count) * length, 0.0f);
  for (int line = 0; line < count; ++line, queries += span, weights += length)
    for (int unit = 0; unit < width; unit += units) {
      float highest;
      score_keys<1>(&reading, queries + unit, span, reading.cache->keys.data() + size_t(unit) * kLanes, units, width,
                    scores, room, &highest);
      const float share = weigh(scores, highest, length) / heads;
      for (int place = 0; place < length; ++place) weights[place] += scores[place] * share;
    }
}

// The best `beta` tokens behind the window's `line`.
void Network::candidates(int line, int beta, int64_t* ids, float* log_probs, Workspace& space) const {
  space.places.resize(beta);
  best_places(space.scores, line, beta, space.places.data());
  const float* scores = space.scores.of(line);
  const float all = log_sum(scores, space.scores.size, scores[space.places[0]]);
  for (int i = 0; i < beta; ++i) {
    ids[i] = output_.id(space.places[i]);
    log_probs[i] = scores[space.places[i]] - all;
  }
}

// The best token behind the screened window's `line`.
int64_t Network::best_token(int line, Workspace& space) const {
  int place = -1;
  if (output_.screen.serves()) {
    const uint8_t* bytes = space.bytes.begin() + size_t(line) * stride_;
    place = output_.screen.best(bytes, line, space.scores);
    if (place < 0) {
      score_outputs(output_.product, crew_, bytes, 1, space.line_scores);
      place = space.line_scores.best(0).number;
    }
  } else {
    place = space.scores.best(line).number;
  }
  return output_.id(place);
}

// The drafter's scores of each row's slots; `gates`: of the bigram term.
void Network::drafted(Row* const* rows, const int64_t* lengths, int count, const int64_t* last_ids, int slots,
                      float* gates, Workspace& space) const {
  const int total = count * (slots + 1), lines = count * slots, layers = int(drafter_.size());
  if (!lines) throw std::invalid_argument("a draft of no slots");
  float* x = space.x.get(size_t(total) * stride_);
  space.lines.assign(total, {});
  for (int row = 0; row < count; ++row) {
    const int length = int(lengths[row]), visible = length + slots + 1;
    rows[row]->reserve(visible, int(shape_.width));
    rows[row]->drafts = true;
    space.lines[row] = {rows[row], length, visible};
    embed_target(last_ids[row], length, x + size_t(row) * stride_);
    for (int slot = 0; slot < slots; ++slot) {
      const int line = count + row * slots + slot;
      space.lines[line] = {rows[row], length + 1 + slot, visible};
      position(target_positions_, length + 1 + slot, x + size_t(line) * stride_);
      add_row(slots_, slot, 1, x + size_t(line) * stride_);
    }
  }
  for (int index = 0; index < layers; ++index)
    decoder_layer(drafter_[index], int(decoder_.size()) + index, space.lines, index + 1 == layers ? count : 0, true,
                  kRelu, x, space);
  uint8_t* bytes = space.bytes.get(size_t(total) * stride_);
  read(x + size_t(count) * stride_, lines, drafter_norm_, true, reads_gate_, bytes, space);
  gate_.write(crew_, bytes, lines, gates);
  score_outputs(draft_output_.product, crew_, bytes, lines, space.scores);
}

}  // namespace specmt
