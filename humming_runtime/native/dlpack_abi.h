// DLPack 1.x as far as a tensor is read: DLTensor, and the exchange functions that torch >= 2.10 publishes in
// `torch.Tensor.__dlpack_c_exchange_api__`. Layouts are those of the DLPack specification, major version 1.
#pragma once

#include <stdint.h>

enum { kDlpackMajor = 1 };
enum { kDlCpu = 1, kDlCuda = 2 };  // DLDeviceType

typedef struct {
  int32_t type;
  int32_t id;
} DlDevice;

typedef struct {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} DlDtype;

typedef struct {
  void* data;
  DlDevice device;
  int32_t ndim;
  DlDtype dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} DlTensor;

typedef struct DlExchangeApi {
  struct {
    uint32_t major;
    uint32_t minor;
  } version;
  struct DlExchangeApi* previous;
  void* allocate;
  void* managed_from_object;
  void* object_from_managed;
  int (*tensor_from_object)(void* object, DlTensor* out);  // borrows; may be null
  int (*current_stream)(int32_t device_type, int32_t device_id, void** out);
} DlExchangeApi;
