# SPDX-License-Identifier: Apache-2.0
"""A pretrained encoder as a graph of ONNX: exported from transformers, quantised and run by ONNX Runtime or OpenVINO."""

import warnings

import numpy as np


def export(folder, path):
    import torch
    from transformers import AutoModel, logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()

    class LastHidden(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()

        def forward(self, input_ids, attention_mask):
            return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state

    ids = torch.full((2, 9), 7)
    axes = {0: "batch", 1: "length"}
    names = ["input_ids", "attention_mask"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(LastHidden(), (ids, torch.ones_like(ids)), path, dynamo=False, opset_version=17,
                          input_names=names, output_names=["hidden"],
                          dynamic_axes={name: axes for name in names + ["hidden"]})


def quantise(path, to):
    """Weights to 8 bits, and inputs of products as they come, by the tool that comes with ONNX Runtime."""
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.shape_inference import quant_pre_process

    prepared = to.with_suffix(".prepared.onnx")
    quant_pre_process(path, prepared, skip_symbolic_shape=True)
    # As its manual says for processors without VNNI, whose products of 8 bits saturate.
    quantize_dynamic(prepared, to, weight_type=QuantType.QInt8, per_channel=True, reduce_range=True)


def session(graph, threads):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    made = onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
    return lambda ids, mask: made.run(None, {"input_ids": ids, "attention_mask": mask})[0]


def openvino_session(graph, cutter, texts, threads):
    """The graph in int8 by NNCF, which measures the inputs of products on some texts, and run by OpenVINO."""
    import logging

    import nncf
    import openvino

    logging.getLogger("nncf").setLevel(logging.ERROR)

    def inputs(text):
        cut = cutter.encode(text)
        return {"input_ids": np.array([cut.ids], dtype=np.int64),
                "attention_mask": np.array([cut.attention_mask], dtype=np.int64)}

    core = openvino.Core()
    model = nncf.quantize(core.read_model(graph), nncf.Dataset(texts, inputs), model_type=nncf.ModelType.TRANSFORMER,
                          subset_size=len(texts))
    made = core.compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1})
    return lambda ids, mask: made({"input_ids": ids, "attention_mask": mask})[0]


def batches(cutter, run, size):
    """encode(texts): the mean of the real tokens, of length 1; `size` texts of like length at a time, padded."""
    cutter.enable_padding()

    def encode(texts):
        order = np.argsort([-len(text) for text in texts], kind="stable")
        vectors = [None] * len(texts)
        for start in range(0, len(order), size):
            places = order[start : start + size]
            cut = cutter.encode_batch([texts[i] for i in places])
            ids = np.array([one.ids for one in cut], dtype=np.int64)
            mask = np.array([one.attention_mask for one in cut], dtype=np.int64)
            real = mask[:, :, None].astype(np.float32)
            mean = (run(ids, mask) * real).sum(1) / real.sum(1)
            mean /= np.linalg.norm(mean, axis=1, keepdims=True)
            for place, vector in zip(places, mean):
                vectors[place] = vector
        return np.array(vectors)

    return encode
