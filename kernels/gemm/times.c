/* times.c: written by scripts/fit-times. The order is that of struct gemm_times, and nothing is left out. */
#include "gemm/times.h"

/* clang-format off */
GEMM_TIMES gemm_times = {
    .cublas_f32 = {
        .launch_ns = 3450, .joining_ns = 4130, .sum = 4.188, .write = 0.301, .part_min = 20.25, .read = 0,
        .lasting = 0,
        .blocks = {{.side = 32, .per_k = 72.67, .flops = 100.2}, {.side = 64, .per_k = 107.1, .flops = 171.4},
                   {.side = 128, .per_k = 114.8, .flops = 192.1}}},
    .cublas_unaligned = {
        .launch_ns = 3865, .joining_ns = 3025, .sum = 3.129, .write = 0.3485, .part_min = 140, .read = 0.4381,
        .lasting = 0,
        .blocks = {{.side = 32, .per_k = 19.01, .flops = 90.68}, {.side = 64, .per_k = 26.53, .flops = 112.9},
                   {.side = 128, .per_k = 36.63, .flops = 470.6}}},
    .cublas_tf32 = {
        .launch_ns = 3658, .joining_ns = 3556, .sum = 2.359, .write = 0.1972, .part_min = 26, .read = 0.8787,
        .lasting = 0.05406,
        .blocks = {{.side = 32, .per_k = 29.11, .flops = 535.7}, {.side = 64, .per_k = 10.69, .flops = 508.9},
                   {.side = 128, .per_k = 14.65, .flops = 1630}}},
    .cublas_16 = {
        .launch_ns = 3792, .joining_ns = 3972, .sum = 5.777, .write = 0.08118, .part_min = 48.7, .read = 0.633,
        .lasting = 0.2743,
        .blocks = {{.side = 32, .per_k = 2.97, .flops = 1083}, {.side = 64, .per_k = 4.158, .flops = 3451},
                   {.side = 128, .per_k = 9.504, .flops = 1584}}},
    .cublas = {.short_ns = 6730, .short_element_ns = 0.0135, .small_ns = 7640,
               .thin_64 = 1.14, .thin_128 = 1.07},
    .pipelined = {.launch_ns = 2900, .write = 0.212, .unaligned = 1.26, .apart = 2.7,
                  .blocks = {.side = 128, .per_k = 208, .flops = 180}},
    .bankfree = {.launch_ns = 5741, .write = 0.212, .unaligned = 1.26, .apart = 2.6,
                 .blocks = {.side = 128, .per_k = 279.6, .flops = 149.5}},
    .blocked = {.launch_ns = 4248, .write = 0.212, .unaligned = 1.26, .apart = 1.75,
                .blocks = {.side = 128, .per_k = 333.9, .flops = 119}},
    .tile32 = {.launch_ns = 2900, .write = 2.8, .unaligned = 1, .apart = 2.3,
               .blocks = {.side = 32, .per_k = 88, .flops = 34.24}},
    .tile16 = {.launch_ns = 2800, .write = 2.77, .unaligned = 1, .apart = 4.5,
               .blocks = {.side = 16, .per_k = 75, .flops = 30.5}},
    .naive = {.launch_ns = 2900, .write = 3.37, .unaligned = 1, .apart = 14,
              .blocks = {.side = 16, .per_k = 90, .flops = 23}},
    .naive_others = {.launch_ns = 2600, .write = 3.37, .unaligned = 1, .apart = 14,
                 .blocks = {.side = 16, .per_k = 106.7, .flops = 18}},
    .wgmma = {.launch_ns = 1140, .of_cut = 0.82, .read = 0.998, .lasting = 0.462},
    .f16x3 = {.launch_ns = 18000, .of_cut = 1, .passes = 1.234, .write_single = 25.5, .write_within = 13,
              .write_sectors = 6.26, .lasting = 0.1},
};
/* clang-format on */
