/* cuda_pipeline_primitives.h: nothing of it is emulated. */
