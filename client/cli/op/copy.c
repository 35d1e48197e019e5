/* copy: moves bytes and changes none. */
#include "op/operation.h"

const struct operation operation_copy = {
    .name = "copy",
    .n_inputs = 1,
    .bench = {.what = "copies",
              .seed = "64x1024,256x1024,1024x1024,4096x1024,16384x1024,65536x1024,262144x1024,524288x1024",
              .random = {{1, 32}, {1 << 15, 1 << 15}, 1ull << 27},
              .random_cpu = {{1, 32}, {1 << 11, 1 << 11}, 1ull << 20},
              .is_measure = true},
};
