"""A drafter in training over a verifier of any shape is the one that the engine runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import cpu_pair
import numpy as np
import pytest
import torch
from cpu_pair import ARCHITECTURE, FOREIGN, MARIAN
from torch_pair import drafted

from specmt.bundles.architecture import Architecture
from specmt.bundles.bundle import WEIGHTS
from specmt.bundles.tensors import DRAFTER_OUTPUT, ids_name
from specmt.bundles.weights import read_stored, save_weights
from specmt.engines.torch_engine import TorchEngine
from specmt.fairseq_backend.drafter import DrafterModel, DrafterModelConfig
from specmt.fairseq_backend.frozen import FrozenBundle
from specmt.files import write_json
from specmt.text.vocabulary import EOS_ID, PAD_ID

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")

LEARNED = replace(MARIAN, source_positions=12, target_positions=9, activation="relu", draft_length=5)
"""Its windows reach behind the table."""
SHAPES = {"own": ARCHITECTURE, "foreign": FOREIGN, "marian": MARIAN, "learned": LEARNED}
SOURCES = [[7, 9, 11, 30, EOS_ID], [20, EOS_ID]]
TARGETS = [[12, 13, 14, 15, 16, EOS_ID], [40, 41, EOS_ID]]
DRAFTER = "drafter."


def weights_of(shape: Architecture) -> dict[str, torch.Tensor]:
    weights = {name: torch.from_numpy(array) for name, array in cpu_pair.random_weights(3, shape).items()}
    ids = weights[ids_name(DRAFTER_OUTPUT)]
    said = weights.get("output.ids")
    if said is not None:  # a drafter's tokens are some of its verifier's
        ids = weights[ids_name(DRAFTER_OUTPUT)] = said[: len(ids)]
    rows = FrozenBundle(shape, weights).output[ids]
    return {**weights, f"{DRAFTER_OUTPUT}.weight": rows}


def trained_over(shape: Architecture, weights: dict[str, torch.Tensor], folder: Path) -> DrafterModel:
    """The trainer's model with the drafter of `weights`."""
    write_json(folder / "output_ids.json", weights[ids_name(DRAFTER_OUTPUT)].tolist())
    settings = DrafterModelConfig(
        layers=shape.drafter_layers,
        draft_length=shape.draft_length,
        bigram_rank=shape.bigram_rank,
        output_ids=str(folder / "output_ids.json"),
    )
    model = DrafterModel(settings, FrozenBundle(shape, weights)).eval()
    own = {name.removeprefix(DRAFTER): w for name, w in weights.items() if name.startswith(DRAFTER)}
    own.pop("output.weight")  # rows of the verifier's
    model.load_state_dict(own)
    return model


def sample() -> dict[str, object]:
    """A padded batch as fairseq makes it: sources padded on the left, targets on the right."""

    def padded(rows: list[list[int]], left: bool) -> torch.Tensor:
        room = [[PAD_ID] * (max(map(len, rows)) - len(row)) for row in rows]
        return torch.tensor([pad + row if left else row + pad for pad, row in zip(room, rows, strict=True)])

    inputs = {
        "src_tokens": padded(SOURCES, left=True),
        "prev_output_tokens": padded([[EOS_ID, *ids[:-1]] for ids in TARGETS], left=False),
    }
    return {"net_input": inputs, "target": padded(TARGETS, left=False)}


@pytest.mark.parametrize("name", SHAPES)
def test_the_trained_drafter_is_the_one_the_engine_runs(name: str, tmp_path: Path) -> None:
    shape = SHAPES[name]
    weights = weights_of(shape)
    model, engine = trained_over(shape, weights, tmp_path), TorchEngine(shape, weights)
    starts = torch.tensor([[0, 2, 5], [0, 1, 2]])
    windows = model.windows(sample(), starts, PAD_ID)
    with torch.no_grad():
        logits = model(windows) @ model.output_weight.T
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        read = np.array([[EOS_ID, *target[:-1]]])
        for window, start in enumerate(starts[row].tolist()):
            lattice = drafted(engine, source, read, start, shape.draft_length)
            places = model.output.places[torch.from_numpy(lattice.ids[0])]
            np.testing.assert_allclose(lattice.scores[0], logits[row, window].gather(1, places), atol=1e-3)


def test_training_reads_what_gradients_can_flow_behind(tmp_path: Path) -> None:
    weights = weights_of(MARIAN)
    model = trained_over(MARIAN, weights, tmp_path).train()
    windows = model.windows(sample(), torch.tensor([[0, 2], [0, 1]]), PAD_ID)
    model(windows).sum().backward()
    prefix = model.layers[0].prefix_attn.k_proj.weight.grad
    assert prefix is not None and prefix.abs().sum() > 0
    assert not any(name.startswith("verifier") for name, _ in model.named_parameters())


def test_a_drafter_begins_as_its_verifiers_last_layers() -> None:
    weights = weights_of(FOREIGN)
    initial = FrozenBundle(FOREIGN, weights).initial_weights(1)

    def begins_as(mine: str, its: str) -> bool:
        return torch.equal(initial[f"{mine}.weight"], weights[f"verifier.decoder.{its}.weight"])

    assert begins_as("layers.0.self_attn.q_proj", "layers.1.self_attn.q_proj")
    assert begins_as("layers.0.prefix_attn.v_proj", "layers.1.self_attn.v_proj")
    # A norm behind a sublayer is what the next one reads.
    assert begins_as("layers.0.self_attn_layer_norm", "layers.0.final_layer_norm")
    assert begins_as("layers.0.encoder_attn_layer_norm", "layers.1.self_attn_layer_norm")
    assert begins_as("layers.0.final_layer_norm", "layers.1.encoder_attn_layer_norm")
    assert begins_as("layer_norm", "layers.1.final_layer_norm")
    assert "layers.0.self_attn_layer_norm.weight" not in FrozenBundle(FOREIGN, weights).initial_weights(2)


def test_of_a_limited_output_unsaid_tokens_have_no_score() -> None:
    weights = weights_of(FOREIGN)
    output, said = FrozenBundle(FOREIGN, weights).output, weights["output.ids"]
    assert output.shape == (FOREIGN.vocabulary_size, FOREIGN.width)
    assert torch.equal(output[said], weights["output.weight"])
    unsaid = [id_ for id_ in range(FOREIGN.vocabulary_size) if id_ not in set(said.tolist())]
    assert unsaid and not output[unsaid].any()


def test_tensors_that_are_stored_already_stay_as_they_are(tmp_path: Path) -> None:
    plain = replace(ARCHITECTURE, drafter_layers=0, draft_length=0, bigram_rank=0, draft_vocabulary_size=0)
    weights = cpu_pair.random_weights(3)
    save_weights({name: w for name, w in weights.items() if not name.startswith(DRAFTER)}, tmp_path / WEIGHTS)
    before = {name: array.copy() for name, array in read_stored(tmp_path / WEIGHTS, plain).items()}
    drafter = {name: w for name, w in weights.items() if name.startswith(DRAFTER)}
    save_weights(drafter, tmp_path / "both", before)
    both = read_stored(tmp_path / "both", ARCHITECTURE)
    assert all(np.array_equal(both[name], array) for name, array in before.items())
    assert len(both) > len(before)


@pytest.mark.parametrize("name", SHAPES)
def test_the_verifier_goes_with_the_drafter_to_where_it_is_moved(name: str, tmp_path: Path) -> None:
    """As to a GPU; here each tensor is copied, and the old ones are made useless."""
    weights = weights_of(SHAPES[name])
    model, starts = trained_over(SHAPES[name], weights, tmp_path), torch.tensor([[0, 2, 5], [0, 1, 2]])
    before = model(model.windows(sample(), starts, PAD_ID))
    model._apply(torch.Tensor.clone)
    for name_of_tensor, tensor in weights.items():
        if tensor.is_floating_point() and not name_of_tensor.startswith(DRAFTER):
            tensor.fill_(float("nan"))
    assert torch.equal(model(model.windows(sample(), starts, PAD_ID)), before)
