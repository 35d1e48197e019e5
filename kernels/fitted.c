/*
 * fitted.c: written by scripts/fit-times. The order is that of struct fitted, and nothing is left out. Fitted
 * on one NVIDIA H200: 132 multiprocessors at 1980 MHz, PCIe 5 x16. Beside each op stands what its constants
 * were fitted to, in bench/recorded/.
 */
#include "fitted.h"

/* clang-format off */
FITTED fitted = {
    .gpu = {.clock = 1.98},
    .memory = {.share = 0.87, .of_scattered = 8},
    /* gemm: h200-gemm*.json, h200-random-gemm.json; small: 14 shapes from 32³ to 100×100×1001, and 15 thin ones */
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
               .thin_64 = 1.14, .thin_128 = 1.07, .odd = 5, .loose = 4},
    .pipelined = {.launch_ns = 2900, .write = 0.212, .loose = 2.7, .unaligned = 1.26, .apart = 2.7,
                  .blocks = {.side = 128, .per_k = 208, .flops = 180}},
    .bankfree = {.launch_ns = 5741, .write = 0.212, .loose = 1.86, .unaligned = 1.26, .apart = 2.6,
                 .blocks = {.side = 128, .per_k = 279.6, .flops = 149.5}},
    .blocked = {.launch_ns = 4248, .write = 0.212, .loose = 5.4, .unaligned = 1.26, .apart = 1.75,
                .blocks = {.side = 128, .per_k = 333.9, .flops = 119}},
    .tile32 = {.launch_ns = 2900, .write = 2.8, .loose = 1, .unaligned = 1, .apart = 2.3,
               .blocks = {.side = 32, .per_k = 88, .flops = 34.24}},
    .tile16 = {.launch_ns = 2800, .write = 2.77, .loose = 1, .unaligned = 1, .apart = 4.5,
               .blocks = {.side = 16, .per_k = 75, .flops = 30.5}},
    .naive = {.launch_ns = 2900, .write = 3.37, .loose = 1, .unaligned = 1, .apart = 14,
              .blocks = {.side = 16, .per_k = 90, .flops = 23}},
    .naive_others = {.launch_ns = 2600, .write = 3.37, .loose = 1, .unaligned = 1, .apart = 14,
                 .blocks = {.side = 16, .per_k = 106.7, .flops = 18}},
    .wgmma = {.launch_ns = 1140, .of_cut = 0.82, .read = 0.998, .lasting = 0.462, .pad_ns = 2500},
    .wgmma_cuts = {.block_ns = 2000, .cluster_ns = 2500, .element = 0.055, .joining = 0.18, .loose = 0.06, .wide = 640,
                   .lone = 655, .middle = 500, .square = 350, .narrow = 280, .l2 = 73.48484848484848},
    .f16x3 = {.launch_ns = 18000, .of_cut = 1, .passes = 1.234, .write_single = 25.5, .write_within = 13,
              .write_sectors = 6.26, .lasting = 0.1, .pairs_lasting = 0.42, .pairs_soon_ns = 5e6},
    .f16x3_cuts = {.tile = 5000, .pairs_wave = 525, .pairs_split = 320, .triples_wave = 1050, .triples_split = 520},
    .simt = {.launch_ns = 850, .late_ns = 1450, .least_ns = 2000, .share = 0.623, .f64 = 1, .by_elements = 2.5},
    .simt_64_16 = {.first = 2990, .next = 3740, .beside = 1320, .split = 680, .again = 220, .single = 0.8,
                   .per_k = {28.2, 44.8, 63.5, 0, 0, 0}},
    .simt_64_8 = {.first = 2570, .next = 3590, .beside = 1330, .split = 1360, .again = 1150, .single = 0.9,
                  .per_k = {25.5, 45.5, 0, 0, 0, 0}},
    .simt_32_8 = {.first = 1610, .next = 1850, .beside = 680, .split = 1010, .again = 330, .single = 0.4,
                  .per_k = {11.9, 16.6, 21.6, 26.6, 0, 0}},
    .simt_32_32 = {.first = 1290, .next = 1330, .beside = 370, .split = 1200, .again = 0, .single = 0.8,
                   .per_k = {17.5, 20.2, 29.6, 33.9, 41.9, 46}},
    .simt_f64 = {.first = 1900, .next = 2150, .beside = 700, .split = 1400, .again = 950, .single = 0.4,
                 .per_k = {20, 38, 52, 0, 0, 0}},
    .simt_large = {.launch_ns = 2500, .turn_ns = 2500, .turn_byte = 6e-4, .first = 2000, .next = 5000, .per_k = 78},
    .small = {.launch_ns = 850, .first_ns = 800, .step = 370, .beside = 320, .step_by_elements = 2200,
              .beside_by_elements = 700},
    .shifted = {.launch_ns = 6500, .join_ns = 5500, .unit_ns = 300, .step_ns = 470, .row_ns = 2.8, .col_ns = 1.9,
                .loose_ns = 5250},
    .ragged = {.launch_ns = 1500, .join_ns = 2500, .block = 4000, .step = 2400, .few = 32},
    /* softmax: h200-softmax*.json, h200-random-softmax.json */
    .ring = {.launch_ns = 4800, .share = 0.86},
    .fused = {.short_ns = 1500, .kept_ns = 3200, .long_ns = 5500, .kept_share = 0.865, .long_share = 0.62},
    .passes = {.short_ns = 2000, .long_ns = 4200, .share = 0.87, .halved = 0.55},
    .online = {.row = 110, .lines = 12.5, .element = 0.67, .alone = 0.42, .together = 0.42},
    .coalesced = {.row = 110, .lines = 13.5, .element = 0.74, .alone = 0.5, .together = 0.5},
    .blockreduce = {.row = 400, .lines = 24, .element = 2.5, .alone = 2.95, .together = 3.2},
    .by_elements = {.launch_ns = 2000, .full = 720, .element = 3, .visit = 0.186},
    .pieces = {.launch_ns = 1950, .row_ns = 3.549, .share = 0.7429, .step = 119.6, .join = 955.9},
    /* transpose: h200-transpose.json, h200-random-transpose.json */
    .tiles = {.tile = 200},
    .vector = {.launch_ns = 1650, .full_ns = 0, .share = 0.86},
    .padded = {.launch_ns = 1650, .full_ns = 1400, .share = 0.84},
    .tiled_rect = {.of_2 = 0.79, .of_4 = 1.29, .of_8 = 1.48},
    .tiled = {.of_2 = 1.83, .of_4 = 2.23, .of_8 = 2.37},
    .perelement = {.launch_ns = 750, .element = 5.6, .bytes = 64, .share = 0.96},
    .perrow = {.launch_ns = 900, .step = 645},
    .perrow_elements = {.of_2 = 4, .of_4 = 5.8, .of_8 = 6.2},
    .serial = {.launch_ns = 900, .element = 83},
    /* reduce: h200-reduce-bf16.json, h200-reduce-f16.json, h200-reduce.json, h200-random-reduce.json */
    .reduce = {.launch_ns = 215.3, .row_ns = 0.008536, .share = 0.928, .far = 32, .near = 0.45, .neighbours = 0.7,
               .apart = 0.4, .step = 12},
    /* add: h200-add.json, h200-random-add.json */
    .add = {.launch_ns = 1100, .vectors = 0.89, .elements = 0.68, .clocks = 0.95, .few = 20480, .sooner_ns = 60},
    /* copy: h200-copy.json, h200-random-copy.json */
    .copy = {.engine_ns = 2200, .kernel_ns = 1200},
    /* A run: measured by hand. */
    .host = {.launch = 3, .run = 15, .link = 55e3, .pageable = 20e3, .gather = 2e-3, .streaming = 320, .reusing = 0.745},
};
/* clang-format on */
