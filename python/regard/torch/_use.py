# SPDX-License-Identifier: Apache-2.0
"""Models that exist already, by regard."""

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from ._functional import OUR_TYPES, scaled_dot_product_attention
from ._multihead import multi_head_attention_forward

_OURS = {
    F.scaled_dot_product_attention: scaled_dot_product_attention,
    F.multi_head_attention_forward: multi_head_attention_forward,
}


class use(TorchFunctionMode):
    """Inside, PyTorch's attention on the CPU is regard's.

    Routes F.scaled_dot_product_attention and nn.MultiheadAttention (and with it
    nn.Transformer) of models as they are. Tensors elsewhere than on the CPU, nested
    ones and subclasses go to PyTorch. Holds for the calling thread, and may be nested.

    >>> import torch, regard.torch
    >>> model = torch.nn.TransformerEncoderLayer(64, 4, batch_first=True).eval()
    >>> with regard.torch.use():
    ...     model(torch.zeros(2, 10, 64)).shape
    torch.Size([2, 10, 64])
    """

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        ours = _OURS.get(func)
        if ours is not None:
            query = args[0] if args else kwargs["query"]
            if (query.device.type in ("cpu", "meta") and not query.is_nested
                    and all(kind in OUR_TYPES for kind in types)):
                return ours(*args, **kwargs)
        return func(*args, **kwargs)
