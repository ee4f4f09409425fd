// SPDX-License-Identifier: Apache-2.0
// The target regard_precompiled is a precompiled header; CMake wants a source.
