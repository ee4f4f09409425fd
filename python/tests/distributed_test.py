# SPDX-License-Identifier: Apache-2.0
"""context_parallel_attention over gloo: the bits of one process, for 2 and 4. DDP and FSDP with use()."""

import contextlib
import os
import tempfile

import support

if __name__ == "__main__":
    support.main(__file__, needs=["torch"])

import pytest
import regard
import regard.torch
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

HEADS, KV_HEADS, LENGTH, DIM = 8, 4, 37, 16
CASES = {
    "plain": {},
    "causal": {"mask": regard.mask.causal()},
    "window and cap": {"mask": regard.mask.window(9, 0), "softcap": 5.0},
    "alibi and sinks": {"alibi": torch.linspace(0.1, 1.0, HEADS), "sinks": torch.linspace(-1.0, 1.0, HEADS)},
    "cosine": {"score": "cosine", "scale": 4.0},
}


def start(function, arguments, ranks):
    """Processes of one that has imported PyTorch and computed nothing: a dozen imports take most of the time."""
    mp.set_forkserver_preload(["pytest", "regard.torch", "torch.distributed.fsdp"])
    mp.start_processes(function, arguments, nprocs=ranks, start_method="forkserver")


def whole_inputs(kv_heads=KV_HEADS):
    generator = torch.Generator().manual_seed(1)
    shapes = [(2, HEADS, LENGTH, DIM), (2, kv_heads, LENGTH, DIM), (2, kv_heads, LENGTH, DIM), (2, HEADS, LENGTH, DIM)]
    return [torch.randn(shape, generator=generator) for shape in shapes]


def whole_result(options, kv_heads=KV_HEADS):
    q, k, v, gradient = whole_inputs(kv_heads)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    out = regard.torch.attention(*leaves, **options)
    out.backward(gradient)
    return [out.detach(), *(x.grad for x in leaves)]


def check_part(part, options, kv_heads, name):
    """The own positions of out and gradients have the bits of one process."""
    q, k, v, gradient = (x[:, :, part] for x in whole_inputs(kv_heads))
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    out = regard.torch.context_parallel_attention(*leaves, **options)
    out.backward(gradient)
    for what, mine, all_of_it in zip("out dq dk dv".split(), [out, *(x.grad for x in leaves)],
                                     whole_result(options, kv_heads)):
        assert torch.equal(mine, all_of_it[:, :, part]), (name, what, dist.get_rank())


def own_positions(rank, ranks):
    """The first has one more than an even cut would give."""
    ends = [0, LENGTH // ranks + 1, *(LENGTH * i // ranks for i in range(2, ranks)), LENGTH]
    return slice(ends[rank], ends[rank + 1])


def check_sums(part, ranks):
    """Gradients of what there is one of a head, summed over the group."""
    for kv_heads in (KV_HEADS, 1):
        found = []
        for whole in (True, False):
            q, k, v, gradient = whole_inputs(kv_heads)
            sinks, alibi = (torch.linspace(0.1, 1.0, HEADS).requires_grad_() for _ in range(2))
            if whole:
                regard.torch.attention(q, k, v, sinks=sinks, alibi=alibi).backward(gradient)
            else:
                own = [x[:, :, part] for x in (q, k, v, gradient)]
                regard.torch.context_parallel_attention(*own[:3], sinks=sinks, alibi=alibi).backward(own[3])
                for x in (sinks, alibi):
                    dist.all_reduce(x.grad)
            found.append((sinks.grad, alibi.grad))
        for mine, expected in zip(found[1], found[0]):
            assert torch.equal(mine, expected), (kv_heads, ranks)


def check_second_derivatives(part):
    """Refused by heads and by sequence, and not zero."""
    for kv_heads in (KV_HEADS, 1):
        q, k, v, _ = (x[:, :, part] for x in whole_inputs(kv_heads))
        q = q.clone().requires_grad_()
        out = regard.torch.context_parallel_attention(q, k, v)
        (gradient,) = torch.autograd.grad(out.sum(), q, create_graph=True)
        with pytest.raises(RuntimeError, match="no autograd formula was registered|second derivatives"):
            gradient.sum().backward()


def work(rank, ranks, place):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=ranks)
    for name, options in CASES.items():
        check_part(own_positions(rank, ranks), options, KV_HEADS, name)
    # By sequence: one key-value head, or dropout.
    part = slice(LENGTH * rank // ranks, LENGTH * (rank + 1) // ranks)
    for name, options in CASES.items():
        check_part(part, options, 1, name)
    check_part(part, {"dropout": 0.3, "seed": 5}, KV_HEADS, "dropout")
    check_sums(part, ranks)
    check_second_derivatives(part)
    q, k, v, _ = (x[:, :, part] for x in whole_inputs(1))
    with pytest.raises(ValueError, match="dropout needs a seed"):
        regard.torch.context_parallel_attention(q, k, v, dropout=0.1)
    if ranks > 2:
        short = q[:, :, 1:] if rank == 1 else q
        with pytest.raises(ValueError, match="rank 1 must hold|rank 0 must hold"):
            regard.torch.context_parallel_attention(short, k, v)
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_bits_are_those_of_one_process(ranks):
    with tempfile.TemporaryDirectory() as folder:
        start(work, (ranks, os.path.join(folder, "meeting")), ranks)


def test_it_says_that_nobody_has_started_processes():
    q = torch.zeros(1, 2, 3, 4)
    with pytest.raises(RuntimeError, match="init_process_group"):
        regard.torch.context_parallel_attention(q, q, q)


def test_the_reference_is_the_definition():
    """What the processes are compared with is what PyTorch computes."""
    q, k, v, _ = whole_inputs()
    expected = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), enable_gqa=True)
    torch.testing.assert_close(whole_result({})[0].double(), expected, atol=1e-5, rtol=1e-5)


class Small(torch.nn.Module):
    """Self attention between two linear layers."""

    def __init__(self):
        super().__init__()
        self.into, self.out = torch.nn.Linear(DIM, 3 * DIM), torch.nn.Linear(DIM, 1)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.into(x).chunk(3, -1))
        attended = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(attended.transpose(1, 2).flatten(2))


def sharded(model):
    """PyTorch's FSDP2, where it is."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    return fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))


def sharded_flat(model):
    """And the first FSDP."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    return FullyShardedDataParallel(model, device_id=torch.device("cpu"))


WRAPPERS = {"DDP": torch.nn.parallel.DistributedDataParallel, "FSDP": sharded_flat, "FSDP2": sharded}


def learn(rank, ranks, place, results):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=ranks)
    calls = []
    ours = regard.torch._use._OURS
    attend = ours[torch.nn.functional.scaled_dot_product_attention]
    ours[torch.nn.functional.scaled_dot_product_attention] = lambda *args, **kw: calls.append(1) or attend(*args, **kw)
    batch = torch.randn(2 * ranks, 5, DIM, generator=torch.Generator().manual_seed(2))[2 * rank:2 * rank + 2]
    for name, wrap in WRAPPERS.items():
        torch.manual_seed(1)
        model = wrap(Small())
        gradients = []
        calls.clear()
        for context in (regard.torch.use(), contextlib.nullcontext()):
            model.zero_grad()
            with context:
                model(batch).square().mean().backward()
            gradients.append([p.grad.to_local().clone() if hasattr(p.grad, "to_local") else p.grad.clone()
                              for p in model.parameters() if p.grad is not None])
        assert len(calls) == 1, name  # with use(), and not without
        assert gradients[0], name
        for mine, theirs in zip(*gradients):
            torch.testing.assert_close(mine, theirs, msg=lambda text: f"{name}: {text}")
        torch.save(gradients[0], os.path.join(results, f"{name}-{rank}"))
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.parametrize("ranks", [2, 4])
def test_data_parallel_models_learn_with_use(ranks):
    """DDP and FSDP: the gradients that they have without us, within rounding."""
    with tempfile.TemporaryDirectory() as folder:
        start(learn, (ranks, os.path.join(folder, "meeting"), folder), ranks)
        parts = {name: [torch.load(os.path.join(folder, f"{name}-{rank}")) for rank in range(ranks)]
                 for name in WRAPPERS}
    whole = parts["DDP"][0]
    for other in parts["DDP"][1:]:  # after DDP's sum, all processes have the same
        assert all(torch.equal(a, b) for a, b in zip(whole, other))
    # And FSDP's shards are the same numbers.
    for i, gradient in enumerate(whole):
        torch.testing.assert_close(torch.cat([part[i] for part in parts["FSDP2"]]), gradient)
    flat = torch.cat([part[0].flatten() for part in parts["FSDP"]])
    expected = torch.cat([gradient.flatten() for gradient in whole])
    torch.testing.assert_close(flat[:len(expected)], expected)
