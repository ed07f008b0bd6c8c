#include "network.h"

#include <cmath>
#include <limits>
#include <stdexcept>

namespace specmt {
namespace {

constexpr float kEpsilon = 1e-5f;  // of layer norms; fairseq's
constexpr int kFirstPosition = 2;  // fairseq's: positions count from the padding's id, 1
constexpr float kNone = -std::numeric_limits<float>::infinity();
constexpr int kTabledPositions = 256;

// Makes the parts of a network of a bundle's tensors.
struct Parts {
  const Tensors& tensors;
  int width, stride;

  const Stored& matrix(const std::string& name) const { return tensors.matrices.at(name + ".weight"); }

  Quantiser quantiser(const std::string& reader) const { return tensors.quantisers.at(reader + ".weight"); }

  // A matrix and its bias, where it has one.
  Stored linear(const std::string& name) const {
    Stored stored = matrix(name);
    const auto bias = tensors.vectors.find(name + ".bias");
    if (bias != tensors.vectors.end()) stored.bias = bias->second;
    return stored;
  }

  Norm norm(const std::string& name) const {
    Norm norm{std::vector<float>(stride), std::vector<float>(stride)};
    std::copy_n(tensors.vectors.at(name + ".weight"), width, norm.weight.begin());
    std::copy_n(tensors.vectors.at(name + ".bias"), width, norm.bias.begin());
    return norm;
  }

  Attention attention(const std::string& name, const std::vector<std::string>& inputs) const {
    const Quantiser reads = quantiser(name + ".q_proj"), writes = quantiser(name + ".out_proj");
    std::vector<Stored> in;
    for (const std::string& input : inputs) in.push_back(linear(name + "." + input + "_proj"));
    return {norm(name + "_layer_norm"), reads, writes, Product(in, reads),
            Product({linear(name + ".out_proj")}, writes)};
  }

  Attention self_attention(const std::string& layer) const { return attention(layer + ".self_attn", {"q", "k", "v"}); }

  FeedForward feed_forward(const std::string& layer) const {
    const Quantiser reads = quantiser(layer + ".fc1"), inner = quantiser(layer + ".fc2");
    return {norm(layer + ".final_layer_norm"), reads, inner, Product({linear(layer + ".fc1")}, reads),
            Product({linear(layer + ".fc2")}, inner)};
  }

  std::vector<DecoderLayer> decoder_layers(const std::string& stack, int64_t count) const {
    std::vector<DecoderLayer> layers;
    for (int64_t i = 0; i < count; ++i) {
      const std::string layer = layer_name(stack, i);
      layers.push_back({self_attention(layer), attention(layer + ".encoder_attn", {"q"}), feed_forward(layer)});
    }
    return layers;
  }

  // Keys and values of each layer's attention `name`, one below the other.
  std::vector<Stored> keys_and_values(const std::string& stack, int64_t count, const std::string& name) const {
    std::vector<Stored> matrices;
    for (int64_t i = 0; i < count; ++i)
      for (const char* input : {"k_proj", "v_proj"})
        matrices.push_back(linear(layer_name(stack, i) + "." + name + "." + input));
    return matrices;
  }

  // Of the matrix `own`, or of `general` where it is not there.
  Output output(const std::string& own, const std::string& general, const Quantiser& reads) const {
    const bool has_own = tensors.matrices.count(own + ".weight") > 0;
    Output output{reads, Product({matrix(has_own ? own : general)}, reads, kNone)};
    if (tensors.ids.count(own + ".ids")) output.ids = tensors.ids.at(own + ".ids");
    return output;
  }

  static std::string layer_name(const std::string& stack, int64_t index) {
    return stack + ".layers." + std::to_string(index);
  }
};

// `from` and `to` may be the same line.
void normalise(const float* from, int width, int stride, const Norm& norm, float* to) {
  Floats total{};
  for (int i = 0; i < stride; i += kLanes) total += load(from + i);  // padding is zero
  const float mean = sum(total) / width;
  Floats squares{};
  for (int i = 0; i < width; i += kLanes) {
    const Floats centred = first(load(from + i) - mean, width - i, 0);
    squares += centred * centred;
  }
  const float scale = 1 / std::sqrt(sum(squares) / width + kEpsilon);
  for (int i = 0; i < stride; i += kLanes)
    store(to + i, (load(from + i) - mean) * scale * load(&norm.weight[i]) + load(&norm.bias[i]));
}

// Adds a row of an embedding table, `scale` times.
void add_row(const Stored& table, int64_t id, float scale, float* line) {
  if (id < 0 || id >= table.outputs) throw std::out_of_range("token id " + std::to_string(id));
  const int8_t* row = table.integers + size_t(id) * table.inputs;
  const float step = table.scales[id] * scale;
  for (int i = 0; i < table.inputs; ++i) line[i] += row[i] * step;
}

Workspace& workspace() {
  thread_local Workspace space;
  return space;
}

// What one head reads: softmax(query . keys / sqrt(units)) of the first `visible` positions, times their values.
// `keys` and `values` begin at the head's first unit. `weights` holds `visible` rounded up to whole vectors.
void attend_head(const float* query, const float* keys, const float* values, int units, int width, int visible,
                 float* weights, float* to) {
  const float scale = 1 / std::sqrt(float(units));
  const int blocks = (visible + kLanes - 1) / kLanes;
  Floats top = splat(kNone);
  for (int block = 0; block < blocks; ++block) {
    const float* block_keys = keys + size_t(block) * width * kLanes;
    Floats parts[4] = {};
    int unit = 0;
    for (; unit + 4 <= units; unit += 4)
      for (int part = 0; part < 4; ++part)
        parts[part] += query[unit + part] * load(block_keys + (unit + part) * kLanes);
    for (; unit < units; ++unit) parts[0] += query[unit] * load(block_keys + unit * kLanes);
    const Floats scores = ((parts[0] + parts[1]) + (parts[2] + parts[3])) * scale;
    const Floats seen = first(scores, visible - block * kLanes, kNone);
    store(weights + block * kLanes, seen);
    top = larger(top, seen);
  }
  const float highest = largest(top);
  Floats total{};
  for (int block = 0; block < blocks; ++block) {
    const Floats weight = first(exponential(load(weights + block * kLanes) - highest), visible - block * kLanes, 0);
    store(weights + block * kLanes, weight);
    total += weight;
  }
  const float share = 1 / sum(total);
  int unit = 0;
  for (; unit + 4 * kLanes <= units; unit += 4 * kLanes) {
    Floats read[4] = {};
    for (int key = 0; key < visible; ++key)
      for (int part = 0; part < 4; ++part)
        read[part] += weights[key] * load(values + size_t(key) * width + unit + part * kLanes);
    for (int part = 0; part < 4; ++part) store(to + unit + part * kLanes, read[part] * share);
  }
  for (; unit + kLanes <= units; unit += kLanes) {
    Floats read{};
    for (int key = 0; key < visible; ++key) read += weights[key] * load(values + size_t(key) * width + unit);
    store(to + unit, read * share);
  }
  for (; unit < units; ++unit) {
    float read = 0;
    for (int key = 0; key < visible; ++key) read += weights[key] * values[size_t(key) * width + unit];
    to[unit] = read * share;
  }
}

void attend(const float* query, const KeyValues& cache, int heads, int width, int visible, float* weights, float* to) {
  const int units = width / heads;
  for (int head = 0; head < heads; ++head) {
    const int unit = head * units;
    attend_head(query + unit, cache.keys.data() + size_t(unit) * kLanes, cache.values.data() + unit, units, width,
                visible, weights, to + unit);
  }
}

// Log of the sum of the exponentials of `size` scores (a multiple of 16), of which `highest` is the largest.
float log_sum(const float* scores, int size, float highest) {
  Floats total{};
  for (int i = 0; i < size; i += kLanes) total += exponential(load(scores + i) - highest);
  return highest + float(std::log(double(sum(total))));
}

// As the lattice's transitions: what the token at `place` gains behind the token `left`.
float transition(const Stored& lefts, int64_t left, const Stored& rights, int place, const float* gate) {
  const int rank = lefts.inputs;
  const int8_t* a = lefts.integers + size_t(left) * rank;
  const int8_t* b = rights.integers + size_t(place) * rank;
  Floats total{};
  int i = 0;
  float gated[kLanes];
  for (; i + kLanes <= rank; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) gated[lane] = float(a[i + lane] * b[i + lane]);
    total += load(gated) * load(gate + i);
  }
  float rest = 0;
  for (; i < rank; ++i) rest += float(a[i] * b[i]) * gate[i];
  return (sum(total) + rest) * lefts.scales[left] * rights.scales[place];
}

}  // namespace

void KeyValues::reserve(int positions, int width) {
  keys.resize(size_t(positions) * width);
  values.resize(size_t(positions) * width);
}

void KeyValues::write(int position, const float* key, const float* value, int width) {
  float* block = keys.data() + size_t(position / kLanes) * width * kLanes + position % kLanes;
  for (int unit = 0; unit < width; ++unit) block[unit * kLanes] = key[unit];
  std::copy_n(value, width, values.data() + size_t(position) * width);
}

void KeyValues::fill(int count, const float* lines, size_t stride, int width) {
  for (int begin = 0; begin < count; begin += kLanes) {
    const int here = std::min(count - begin, kLanes);
    const float* from = lines + begin * stride;
    float* block = keys.data() + size_t(begin) * width;
    for (int unit = 0; unit < width; ++unit)
      for (int place = 0; place < here; ++place) block[unit * kLanes + place] = from[place * stride + unit];
  }
  for (int place = 0; place < count; ++place)
    std::copy_n(lines + place * stride + width, width, values.data() + size_t(place) * width);
}

void Row::reserve(int positions, int width) {
  if (positions <= capacity) return;
  const int wanted = rounded_up(std::max(positions, 2 * capacity), kLanes);
  for (KeyValues& layer : layers) layer.reserve(wanted, width);
  capacity = wanted;  // now that there was memory for all
}

void best_places(float* scores, int size, int count, Selection& space, int* places) {
  const int blocks = size / kGroup;
  const auto block_maximum = [scores](int block) {
    const float* from = scores + block * kGroup;
    return largest(larger(larger(load(from), load(from + 16)), larger(load(from + 32), load(from + 48))));
  };
  std::vector<float>& maxima = space.maxima;
  std::vector<float>& taken = space.taken;
  maxima.resize(rounded_up(blocks, kLanes));
  std::fill(maxima.begin(), maxima.end(), kNone);
  for (int block = 0; block < blocks; ++block) maxima[block] = block_maximum(block);
  taken.resize(count);
  for (int i = 0; i < count; ++i) {
    const int block = int(std::max_element(maxima.begin(), maxima.begin() + blocks) - maxima.begin());
    float* from = scores + block * kGroup;
    const int place = int(std::max_element(from, from + kGroup) - from);
    places[i] = block * kGroup + place;
    taken[i] = from[place];
    if (i + 1 == count) break;
    from[place] = kNone;
    maxima[block] = block_maximum(block);
  }
  for (int i = 0; i < count; ++i) scores[places[i]] = taken[i];
}

Network::Network(const Architecture& architecture, const Tensors& tensors)
    : shape_(architecture), stride_(rounded_up(int(architecture.width), kGroup)) {
  const Parts parts{tensors, int(shape_.width), stride_};
  for (int64_t i = 0; i < shape_.encoder_layers; ++i) {
    const std::string layer = Parts::layer_name("verifier.encoder", i);
    encoder_.push_back({parts.self_attention(layer), parts.feed_forward(layer)});
  }
  decoder_ = parts.decoder_layers("verifier.decoder", shape_.decoder_layers);
  drafter_ = parts.decoder_layers("drafter", shape_.drafter_layers);
  if (shape_.encoder_final_norm) encoder_norm_ = parts.norm("verifier.encoder.layer_norm");
  if (shape_.decoder_final_norm) decoder_norm_ = parts.norm("verifier.decoder.layer_norm");

  std::vector<Stored> memory = parts.keys_and_values("verifier.decoder", shape_.decoder_layers, "encoder_attn");
  for (const Stored& matrix : parts.keys_and_values("drafter", shape_.drafter_layers, "encoder_attn"))
    memory.push_back(matrix);
  reads_memory_ = parts.quantiser("verifier.decoder.layers.0.encoder_attn.k_proj");
  memory_ = Product(memory, reads_memory_);

  embeddings_ = parts.matrix("embeddings");
  source_embeddings_ = shape_.source_vocabulary_size ? parts.matrix("source_embeddings") : embeddings_;
  embedding_scale_ = shape_.scaled_embeddings ? float(std::sqrt(double(shape_.width))) : 1;
  const std::string general = shape_.tied_output ? "embeddings" : "output";
  if (shape_.drafter_layers) {
    reads_states_ = parts.quantiser("drafter.layers.0.prefix_attn.k_proj");
    reads_gate_ = parts.quantiser("drafter.bigram_gate");
    prefix_ = Product(parts.keys_and_values("drafter", shape_.drafter_layers, "prefix_attn"), reads_states_);
    gate_ = Product({parts.matrix("drafter.bigram_gate")}, reads_gate_);
    draft_output_ = parts.output("drafter.output", general, reads_gate_);
    drafter_norm_ = parts.norm("drafter.layer_norm");
    slots_ = parts.matrix("drafter.slots");
    bigram_left_ = parts.matrix("drafter.bigram_left");
    bigram_right_ = parts.matrix("drafter.bigram_right");
  } else {
    reads_states_ = parts.quantiser(tensors.matrices.count("output.weight") ? "output" : general);
  }
  output_ = parts.output("output", general, reads_states_);

  source_positions_ = position_table(tensors, "source_positions", shape_.source_positions);
  target_positions_ = position_table(tensors, "target_positions", shape_.target_positions);
}

Positions Network::position_table(const Tensors& tensors, const std::string& name, bool learned) const {
  const Stored stored = learned ? tensors.matrices.at(name + ".weight") : Stored{};
  const int count = learned ? stored.outputs : kTabledPositions;
  Positions positions{std::vector<float>(size_t(count) * stride_), learned};
  for (int place = 0; place < count; ++place) {
    float* line = &positions.table[size_t(place) * stride_];
    if (learned)
      add_row(stored, place, 1, line);
    else
      position({{}, false}, place, line);
  }
  return positions;
}

// Sinusoids as fairseq computes them, or what was learned. Behind a learned table its last line stands again: windows
// reach there, but no token that counts does.
void Network::position(const Positions& positions, int place, float* line) const {
  const int tabled = int(positions.table.size() / stride_);
  if (place < tabled || positions.learned) {
    std::copy_n(&positions.table[size_t(std::min(place, tabled - 1)) * stride_], stride_, line);
    return;
  }
  const int half = int(shape_.width / 2);
  const double step = std::log(10000.0) / (half - 1);
  for (int i = 0; i < half; ++i) {
    const double angle = (place + kFirstPosition) * std::exp(i * -step);
    line[i] = float(std::sin(angle));
    line[half + i] = float(std::cos(angle));
  }
  std::fill(line + 2 * half, line + stride_, 0.0f);
}

void Network::embed_source(int64_t id, int place, float* line) const {
  position(source_positions_, place, line);
  add_row(source_embeddings_, id, embedding_scale_, line);
}

// Of the target side.
void Network::embed(const Stored& table, int64_t id, float scale, int place, float* line) const {
  position(target_positions_, place, line);
  add_row(table, id, scale, line);
}

// What a sublayer reads of the residual stream, in 8 bits.
void Network::read(const float* x, int lines, const Norm& norm, bool pre_norm, const Quantiser& quantiser,
                   uint8_t* bytes, Workspace& space) const {
  float* normed = space.normed.get(stride_);
  for (int line = 0; line < lines; ++line) {
    const float* from = x + size_t(line) * stride_;
    if (pre_norm) {
      normalise(from, int(shape_.width), stride_, norm, normed);
      from = normed;
    }
    quantiser.apply(from, int(shape_.width), stride_, bytes + size_t(line) * stride_);
  }
}

// Adds a sublayer's last product to the residual stream.
void Network::add(const Product& product, const uint8_t* bytes, int lines, const Norm& norm, bool pre_norm,
                  float* x) const {
  product.run(bytes, lines, [&](int line, int output, Floats values) {
    float* to = x + size_t(line) * stride_ + output;
    store(to, load(to) + values);
  });
  if (!pre_norm)
    for (int line = 0; line < lines; ++line)
      normalise(x + size_t(line) * stride_, int(shape_.width), stride_, norm, x + size_t(line) * stride_);
}

void Network::feed_forward(const FeedForward& layer, int lines, bool pre_norm, bool with_gelu, float* x,
                           Workspace& space) const {
  uint8_t* bytes = space.bytes.get(size_t(lines) * stride_);
  read(x, lines, layer.norm, pre_norm, layer.reads, bytes, space);
  const int inner = layer.fc2.depth();
  uint8_t* inner_bytes = space.inner.get(size_t(lines) * inner);
  const Floats inverse = splat(1 / layer.inner.step), least = splat(-layer.inner.zero);
  const Floats most = splat(255 - layer.inner.zero);
  layer.fc1.run(bytes, lines, [&](int line, int output, Floats values) {
    values = with_gelu ? gelu(values) : larger(values, Floats{});
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
    lines += int(lengths[row]);
    longest = std::max(longest, int(lengths[row]));
  }
  float* x = space.x.get(size_t(lines) * stride_);
  for (int row = 0, line = 0; row < count; ++row)
    for (int place = 0; place < lengths[row]; ++place, ++line)
      embed_source(ids[line], place, x + size_t(line) * stride_);

  KeyValues cache;
  cache.reserve(rounded_up(longest, kLanes), width);
  float* weights = space.scores.get(rounded_up(longest, kLanes));
  for (const EncoderLayer& layer : encoder_) {
    uint8_t* bytes = space.bytes.get(size_t(lines) * stride_);
    read(x, lines, layer.self.norm, pre_norm, layer.self.reads, bytes, space);
    const int span = layer.self.in.padded_outputs();
    float* wide = space.wide.get(size_t(lines) * span);
    layer.self.in.write(bytes, lines, wide);
    float* attended = space.attended.get(stride_);
    for (int row = 0, begin = 0; row < count; begin += int(lengths[row++])) {
      cache.fill(int(lengths[row]), wide + size_t(begin) * span + width, span, width);
      for (int place = 0; place < lengths[row]; ++place) {
        const size_t line = begin + place;
        attend(wide + line * span, cache, heads, width, int(lengths[row]), weights, attended);
        layer.self.writes.apply(attended, width, stride_, bytes + line * stride_);
      }
    }
    add(layer.self.out, bytes, lines, layer.self.norm, pre_norm, x);
    feed_forward(layer.feed_forward, lines, pre_norm, shape_.gelu, x, space);
  }

  uint8_t* bytes = space.bytes.get(size_t(lines) * stride_);
  read(x, lines, encoder_norm_, pre_norm && shape_.encoder_final_norm, reads_memory_, bytes, space);
  const int layers = int(decoder_.size() + drafter_.size()), span = memory_.padded_outputs();
  float* wide = space.wide.get(size_t(lines) * span);
  memory_.write(bytes, lines, wide);
  std::vector<std::unique_ptr<Row>> made;
  for (int row = 0, begin = 0; row < count; begin += int(lengths[row++])) {
    const int length = int(lengths[row]);
    auto source = std::make_shared<Source>(Source{length, std::vector<KeyValues>(layers)});
    for (int index = 0; index < layers; ++index) {
      KeyValues& to = source->layers[index];
      to.reserve(rounded_up(length, kLanes), width);
      to.fill(length, wide + size_t(begin) * span + size_t(2 * index) * width, span, width);
    }
    made.push_back(std::make_unique<Row>(Row{std::move(source), std::vector<KeyValues>(layers)}));
  }
  for (int row = 0; row < count; ++row) rows[row] = made[row].release();
}

// A layer over `lines`, of which only those from `first` on are needed behind it; the others give keys and values.
void Network::decoder_layer(const DecoderLayer& layer, int index, const std::vector<Line>& lines, int first,
                            bool pre_norm, bool gelu, float* x, Workspace& space) const {
  const int width = int(shape_.width), heads = int(shape_.heads), all = int(lines.size()), kept = all - first;
  int longest = 0;
  for (const Line& line : lines) longest = std::max({longest, line.visible, line.row->source->length});
  float* weights = space.scores.get(rounded_up(longest, kLanes));
  float* attended = space.attended.get(stride_);

  uint8_t* bytes = space.bytes.get(size_t(all) * stride_);
  read(x, all, layer.self.norm, pre_norm, layer.self.reads, bytes, space);
  int span = layer.self.in.padded_outputs();
  float* wide = space.wide.get(size_t(all) * span);
  layer.self.in.write(bytes, all, wide);
  for (int line = 0; line < all; ++line) {
    const float* from = wide + size_t(line) * span;
    lines[line].row->layers[index].write(lines[line].position, from + width, from + 2 * width, width);
  }
  float* kept_x = x + size_t(first) * stride_;
  for (int line = 0; line < kept; ++line) {
    const Line& at = lines[first + line];
    attend(wide + size_t(first + line) * span, at.row->layers[index], heads, width, at.visible, weights, attended);
    layer.self.writes.apply(attended, width, stride_, bytes + size_t(line) * stride_);
  }
  add(layer.self.out, bytes, kept, layer.self.norm, pre_norm, kept_x);

  read(kept_x, kept, layer.cross.norm, pre_norm, layer.cross.reads, bytes, space);
  span = layer.cross.in.padded_outputs();
  layer.cross.in.write(bytes, kept, wide);
  for (int line = 0; line < kept; ++line) {
    const Source& source = *lines[first + line].row->source;
    attend(wide + size_t(line) * span, source.layers[index], heads, width, source.length, weights, attended);
    layer.cross.writes.apply(attended, width, stride_, bytes + size_t(line) * stride_);
  }
  add(layer.cross.out, bytes, kept, layer.cross.norm, pre_norm, kept_x);
  feed_forward(layer.feed_forward, kept, pre_norm, gelu, kept_x, space);
}

void Network::read_window(Row* const* rows, const int64_t* lengths, int count, const int64_t* tokens, int window,
                          int beta, int64_t* ids, float* log_probs, Workspace& space) const {
  const int width = int(shape_.width), total = count * window, layers = int(decoder_.size());
  const bool pre_norm = shape_.decoder_pre_norm;
  float* x = space.x.get(size_t(total) * stride_);
  space.lines.clear();
  bool drafts = false;
  for (int row = 0; row < count; ++row) {
    rows[row]->reserve(int(lengths[row]) + window, width);
    drafts |= rows[row]->drafts;
    for (int i = 0; i < window; ++i) {
      const int place = int(lengths[row]) + i, line = row * window + i;
      space.lines.push_back({rows[row], place, place + 1});
      embed(embeddings_, tokens[line], embedding_scale_, place, x + size_t(line) * stride_);
    }
  }
  for (int index = 0; index < layers; ++index)
    decoder_layer(decoder_[index], index, space.lines, 0, pre_norm, shape_.gelu, x, space);
  uint8_t* bytes = space.bytes.get(size_t(total) * stride_);
  read(x, total, decoder_norm_, pre_norm && shape_.decoder_final_norm, reads_states_, bytes, space);
  if (drafts) {
    const int span = prefix_.padded_outputs();
    float* wide = space.wide.get(size_t(total) * span);
    prefix_.write(bytes, total, wide);
    for (int line = 0; line < total; ++line)
      for (int index = 0; index < int(drafter_.size()); ++index) {
        const float* from = wide + size_t(line) * span + size_t(2 * index) * width;
        const Line& at = space.lines[line];
        at.row->layers[layers + index].write(at.position, from, from + width, width);
      }
  }
  const int size = output_.product.padded_outputs();
  float* scores = space.wide.get(size_t(total) * size);
  output_.product.write(bytes, total, scores);
  space.places.resize(beta);
  for (int line = 0; line < total; ++line) {
    float* of_line = scores + size_t(line) * size;
    best_places(of_line, size, beta, space.selection, space.places.data());
    const float all = log_sum(of_line, size, of_line[space.places[0]]);
    for (int i = 0; i < beta; ++i) {
      ids[size_t(line) * beta + i] = output_.id(space.places[i]);
      log_probs[size_t(line) * beta + i] = of_line[space.places[i]] - all;
    }
  }
}

// The drafter's scores of each row's slots, `padded_outputs` a slot; `gates`: of the bigram term, likewise.
float* Network::drafted(Row* const* rows, const int64_t* lengths, int count, const int64_t* last_ids, int slots,
                        float* gates, Workspace& space) const {
  const int total = count * (slots + 1), lines = count * slots, layers = int(drafter_.size());
  float* x = space.x.get(size_t(total) * stride_);
  space.lines.assign(total, {});
  for (int row = 0; row < count; ++row) {
    const int length = int(lengths[row]), visible = length + slots + 1;
    rows[row]->reserve(visible, int(shape_.width));
    rows[row]->drafts = true;
    space.lines[row] = {rows[row], length, visible};
    embed(embeddings_, last_ids[row], embedding_scale_, length, x + size_t(row) * stride_);
    for (int slot = 0; slot < slots; ++slot) {
      const int line = count + row * slots + slot;
      space.lines[line] = {rows[row], length + 1 + slot, visible};
      embed(slots_, slot, 1, length + 1 + slot, x + size_t(line) * stride_);
    }
  }
  for (int index = 0; index < layers; ++index)
    decoder_layer(drafter_[index], int(decoder_.size()) + index, space.lines, index + 1 == layers ? count : 0, true,
                  false, x, space);
  uint8_t* bytes = space.bytes.get(size_t(total) * stride_);
  read(x + size_t(count) * stride_, lines, drafter_norm_, true, reads_gate_, bytes, space);
  const int size = draft_output_.product.padded_outputs();
  gate_.write(bytes, lines, gates);
  float* scores = space.wide.get(size_t(lines) * size);
  draft_output_.product.write(bytes, lines, scores);
  return scores;
}

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
