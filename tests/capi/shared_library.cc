// SPDX-License-Identifier: Apache-2.0
// Nothing of its own: the linker puts the whole library beside it.
