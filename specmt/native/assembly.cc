// A network from a bundle's tensors.
#include "kernels.h"

namespace specmt {
namespace {

constexpr int kTabledPositions = 256;

// Makes the parts of a network of a bundle's tensors.
struct Parts {
  const Tensors& tensors;
  Arena& arena;
  int width, stride;

  const Stored& matrix(const std::string& name) const { return tensors.matrices.at(name + ".weight"); }

  Quantiser quantiser(const std::string& reader) const {
    const auto found = tensors.quantisers.find(reader + ".weight");
    if (found == tensors.quantisers.end()) throw std::out_of_range("no range of " + reader + ".weight");
    return found->second;
  }

  // A matrix with the bias of that name, if there is one.
  Stored linear(const std::string& name, const std::string& biased) const {
    Stored stored = matrix(name);
    const auto bias = tensors.vectors.find(biased + ".bias");
    if (bias != tensors.vectors.end()) stored.bias = bias->second;
    return stored;
  }

  Stored linear(const std::string& name) const { return linear(name, name); }

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
    return {norm(name + "_layer_norm"), reads, writes, Product(arena, in, reads),
            Product(arena, {linear(name + ".out_proj")}, writes)};
  }

  Attention self_attention(const std::string& layer) const { return attention(layer + ".self_attn", {"q", "k", "v"}); }

  FeedForward feed_forward(const std::string& layer) const {
    const Quantiser reads = quantiser(layer + ".fc1"), inner = quantiser(layer + ".fc2");
    return {norm(layer + ".final_layer_norm"), reads, inner, Product(arena, {linear(layer + ".fc1")}, reads),
            Product(arena, {linear(layer + ".fc2")}, inner)};
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
  Output output(const std::string& own, const std::string& general, const Quantiser& reads, bool screened) const {
    const Stored matrix = linear(tensors.matrices.count(own + ".weight") ? own : general, own);
    Output output{reads, Product(arena, {matrix}, reads, kNone)};
    if (screened && Screen::fits(matrix, reads)) output.screen = Screen(arena, matrix, reads);
    if (tensors.ids.count(own + ".ids")) output.ids = tensors.ids.at(own + ".ids");
    return output;
  }

  static std::string layer_name(const std::string& stack, int64_t index) {
    return stack + ".layers." + std::to_string(index);
  }
};

}  // namespace

Network::Network(const Architecture& architecture, const Tensors& tensors, int threads)
    : shape_(architecture), stride_(rounded_up(int(architecture.width), kGroup)), crew_(threads - 1) {
  const Parts parts{tensors, arena_, int(shape_.width), stride_};
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
  memory_ = Product(arena_, memory, reads_memory_);

  embeddings_ = parts.matrix("embeddings");
  source_embeddings_ = shape_.source_vocabulary_size ? parts.matrix("source_embeddings") : embeddings_;
  embedding_scale_ = shape_.scaled_embeddings ? float(std::sqrt(double(shape_.width))) : 1;
  const std::string general = shape_.tied_output ? "embeddings" : "output";
  if (shape_.drafter_layers) {
    reads_states_ = parts.quantiser("drafter.layers.0.prefix_attn.k_proj");
    reads_gate_ = parts.quantiser("drafter.bigram_gate");
    prefix_ = Product(arena_, parts.keys_and_values("drafter", shape_.drafter_layers, "prefix_attn"), reads_states_);
    gate_ = Product(arena_, {parts.matrix("drafter.bigram_gate")}, reads_gate_);
    draft_output_ = parts.output("drafter.output", general, reads_gate_, false);
    drafter_norm_ = parts.norm("drafter.layer_norm");
    slots_ = parts.matrix("drafter.slots");
    bigram_left_ = parts.matrix("drafter.bigram_left");
    bigram_right_ = parts.matrix("drafter.bigram_right");
  } else {
    reads_states_ = parts.quantiser(tensors.matrices.count("output.weight") ? "output" : general);
  }
  output_ = parts.output("output", general, reads_states_, true);

  const int half = int(shape_.width / 2);
  const double step = std::log(10000.0) / (half - 1);
  for (int i = 0; i < half; ++i) frequencies_.push_back(std::exp(i * -step));
  source_positions_ = position_table(tensors, "source_positions", shape_.source_positions);
  target_positions_ = shape_.source_positions || shape_.target_positions
                          ? position_table(tensors, "target_positions", shape_.target_positions)
                          : source_positions_;
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

}  // namespace specmt
