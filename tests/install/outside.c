/* SPDX-License-Identifier: Apache-2.0 */
/* A C program outside the project, which knows the installed package alone. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "regard/c.h"

int main(void) {
  /* Equal keys share the attention, so the output is the mean of the values. */
  float query[] = {1, 0}, keys[] = {1, 1, 1, 1}, values[] = {2, 4, 6, 8};
  float result[2] = {0, 0};
  regard_tensor q = {.size = sizeof q,
                     .data = query,
                     .dtype = REGARD_FLOAT32,
                     .rank = 4,
                     .shape = {1, 1, 1, 2}};
  regard_tensor k = q, v = q, out = q;
  k.data = keys;
  v.data = values;
  k.shape[2] = v.shape[2] = 2;
  out.data = result;
  if (regard_attention_forward(&q, &k, &v, &out, NULL) != REGARD_OK) {
    printf("%s\n", regard_last_error());
    return 1;
  }
  printf("%s, ABI %d: %g %g\n", regard_version(), (int)regard_abi_version(),
         (double)result[0], (double)result[1]);
  return fabs((double)result[0] - 4) < 1e-5 &&
                 fabs((double)result[1] - 6) < 1e-5 &&
                 regard_abi_version() == REGARD_ABI_VERSION &&
                 strcmp(regard_version(), EXPECTED_VERSION) == 0
             ? 0
             : 1;
}
