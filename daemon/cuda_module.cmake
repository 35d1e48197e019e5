# kops-cuda: the CUDA backend and its kernels as a module that kopsd opens at run time. It brings its own copy
# of the rules and views (kops_ops) and of the CUDA runtime, and exports the backend's entry alone.
set(kernels ${PROJECT_SOURCE_DIR}/kernels)

add_library(kops-cuda MODULE
  backend_cuda.c cuda_open.c cuda_hold.cu cuda_memory.c cuda_plan.c cuda_layout.c cuda_stage.c cuda_transfer.c
  ${kernels}/cuda_axes.c ${kernels}/cuda_device.c
  ${kernels}/gemm/cuda.c ${kernels}/gemm/cublas.c ${kernels}/gemm/naive.cu ${kernels}/gemm/tile.cu
  ${kernels}/gemm/blocked.cu ${kernels}/gemm/bankfree.cu ${kernels}/gemm/pipelined.cu ${kernels}/gemm/simt.cu
  ${kernels}/gemm/simt_large.cu ${kernels}/gemm/f16x3.cu ${kernels}/gemm/wgmma.cu
  ${kernels}/softmax/cuda.c ${kernels}/softmax/softmax.cu ${kernels}/softmax/fused.cu ${kernels}/softmax/ring.cu
  ${kernels}/transpose/cuda.c ${kernels}/transpose/transpose.cu ${kernels}/transpose/vector.cu
  ${kernels}/add/cuda.c ${kernels}/add/add.cu
  ${kernels}/copy/cuda.c ${kernels}/copy/copy.cu ${kernels}/copy/vector.cu
  ${kernels}/fma/cuda.c ${kernels}/fma/fma.cu
  $<TARGET_OBJECTS:kops_ops>)
# So that its FMAs stay in the order in which they are written.
set_source_files_properties(${kernels}/gemm/simt_large.cu PROPERTIES COMPILE_OPTIONS -Xptxas=-O1)
# Its blocks fill multiprocessors: nothing covers what each of them copies to local memory when it begins.
if(CMAKE_CUDA_ARCHITECTURES STREQUAL "90a-real")
  set_source_files_properties(${kernels}/softmax/ring.cu PROPERTIES COMPILE_OPTIONS -Xptxas=-warn-lmem-usage)
endif()

set_target_properties(kops-cuda PROPERTIES
  PREFIX "" OUTPUT_NAME kops-cuda
  C_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden
  CUDA_RUNTIME_LIBRARY Static CUDA_SEPARABLE_COMPILATION OFF
  INSTALL_RPATH_USE_LINK_PATH ON)
target_include_directories(kops-cuda PRIVATE
  ${CMAKE_CURRENT_SOURCE_DIR} ${kernels} $<TARGET_PROPERTY:kops_proto,INTERFACE_INCLUDE_DIRECTORIES>)
target_include_directories(kops-cuda SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
target_compile_options(kops-cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>)
if(KOPS_WERROR)
  target_compile_options(kops-cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
endif()
target_link_libraries(kops-cuda PRIVATE kops_compile CUDA::cublas CUDA::cudart_static Threads::Threads m)
target_link_options(kops-cuda PRIVATE LINKER:--exclude-libs,ALL LINKER:--no-undefined)
install(TARGETS kops-cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/kops)
