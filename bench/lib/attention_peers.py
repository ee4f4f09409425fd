# SPDX-License-Identifier: Apache-2.0
"""The rivals that come as Python packages, on the same memory as regard."""

from . import harness, native
from .attention_case import PEER_TOLERANCE


class Torch(harness.Contestant):
    """torch.nn.functional.scaled_dot_product_attention."""

    name = "torch"

    def __init__(self, case, threads):
        import torch

        self.case, self.threads, self._torch = case, threads, torch
        s = case.spec
        self._inputs = [tensor.torch() for tensor in (case.q, case.k, case.v)]
        self._options = {"dropout_p": s.dropout, "is_causal": s.mask == "causal" and not s.dense}
        if s.dense or s.mask == "window":  # it has no window of its own
            self._options["attn_mask"] = case.dense().torch()
        if s.kv_heads != s.heads:
            self._options["enable_gqa"] = True
        self._result = None

    def run(self, calls):
        attend = self._torch.nn.functional.scaled_dot_product_attention
        q, k, v = self._inputs
        options = self._options
        self._torch.set_num_threads(self.threads)
        with self._torch.inference_mode():
            start = harness.clock()
            for _ in range(calls):
                self._result = attend(q, k, v, **options)
            return harness.clock() - start

    def check(self):
        out = self.case.new_out()
        out.torch().copy_(self._result)
        self.case.check(out, self.name, PEER_TOLERANCE)


class _OnnxModel:
    """One attention node in a session of its own, inputs and output bound to memory once."""

    def __init__(self, case, threads, node, inputs, out_shape):
        import numpy
        import onnx
        import onnxruntime

        kind = onnx.TensorProto.FLOAT if case.spec.type == native.FLOAT32 else onnx.TensorProto.FLOAT16
        kinds = {numpy.dtype(numpy.bool_): onnx.TensorProto.BOOL}
        declared = [
            onnx.helper.make_tensor_value_info(name, kinds.get(array.dtype, kind), array.shape)
            for name, array in inputs.items()
        ]
        result = onnx.helper.make_tensor_value_info("out", kind, out_shape)
        graph = onnx.helper.make_graph([node], "attention", declared, [result])
        opsets = [onnx.helper.make_opsetid("", 23), onnx.helper.make_opsetid("com.microsoft", 1)]
        model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=11)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        self._session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        self._binding = self._session.io_binding()
        self._kept = dict(inputs)
        for name, array in inputs.items():
            self._binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
        self.out = numpy.zeros(out_shape, numpy.float32 if case.spec.type == native.FLOAT32 else numpy.float16)
        self._out_value = onnxruntime.OrtValue.ortvalue_from_numpy(self.out)
        self._binding.bind_ortvalue_output("out", self._out_value)

    def run(self, calls):
        run, binding = self._session.run_with_iobinding, self._binding
        start = harness.clock()
        for _ in range(calls):
            run(binding)
        return harness.clock() - start

    def result(self):
        return self._out_value.numpy()


def _opset_attention(case, threads):
    """The standard's Attention (opset 23), [batch, heads, length, width]."""
    import numpy
    import onnx

    s = case.spec
    inputs = {n: numpy.ascontiguousarray(t.numpy()) for n, t in (("q", case.q), ("k", case.k), ("v", case.v))}
    options = {"is_causal": 1} if s.mask == "causal" and not s.dense else {}
    if s.dense or s.mask == "window":
        inputs["mask"] = case.dense().numpy()
    node = onnx.helper.make_node("Attention", list(inputs), ["out"], **options)
    return _OnnxModel(case, threads, node, inputs, (s.batch, s.heads, s.q_len, s.d_v))


def _contrib_attention(case, threads):
    """ONNX Runtime's own MultiHeadAttention, [batch, length, heads * width]."""
    import numpy
    import onnx

    s = case.spec
    if s.kv_heads != s.heads:
        raise harness.Skipped("MultiHeadAttention has no grouped heads")

    def together(tensor):
        array = tensor.numpy().transpose(0, 2, 1, 3)
        return numpy.ascontiguousarray(array).reshape(array.shape[0], array.shape[1], -1)

    inputs = {"q": together(case.q), "k": together(case.k), "v": together(case.v)}
    names, options = list(inputs), {"num_heads": s.heads}
    if s.mask == "causal" and not s.dense:
        options["unidirectional"] = 1
    elif s.mask != "none":
        shown = case.dense().numpy()[None, None]
        inputs["bias"] = numpy.where(shown, 0, -numpy.inf).astype(inputs["q"].dtype)
        names += ["", "", "bias"]
    node = onnx.helper.make_node("MultiHeadAttention", names, ["out"], domain="com.microsoft", **options)
    return _OnnxModel(case, threads, node, inputs, (s.batch, s.q_len, s.heads * s.d_v))


class OnnxRuntime(harness.Contestant):
    """The faster of ONNX Runtime's two attentions."""

    name = "onnxruntime"
    _KINDS = {"Attention": _opset_attention, "MultiHeadAttention": _contrib_attention}

    def __init__(self, case, threads):
        self.case, self.threads = case, threads
        if case.spec.dropout:
            raise harness.Skipped("no dropout in inference")
        if case.spec.type == native.BFLOAT16:
            raise harness.Skipped("no bf16 on CPU")
        best, refusals = None, []
        for kind, make in self._KINDS.items():
            try:
                model = make(case, threads)
                model.run(1)
                seconds = min(model.run(1) for _ in range(3))
                self._check(model, kind)
            except (harness.Skipped, harness.WrongResult) as error:
                refusals.append(str(error))
                continue
            except Exception as error:  # its refusals have many types; the reason is printed
                refusals.append(f"{kind}: {str(error).splitlines()[0][:120]}")
                continue
            if best is None or seconds < best:
                best, self._model, self.detail = seconds, model, kind
        if best is None:
            raise harness.Skipped("; ".join(refusals))

    def _check(self, model, kind):
        s = self.case.spec
        result = model.result()
        if result.ndim == 3:
            result = result.reshape(s.batch, s.q_len, s.heads, s.d_v).transpose(0, 2, 1, 3)
        out = self.case.new_out()
        out.numpy()[...] = result
        self.case.check(out, kind, PEER_TOLERANCE)

    def run(self, calls):
        return self._model.run(calls)

    def check(self):
        self._check(self._model, self.detail)
