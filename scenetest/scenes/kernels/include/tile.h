// A matrix tile: rows and columns that lie strides apart in a larger matrix.
#ifndef SCENE_TILE_H
#define SCENE_TILE_H

#include "device_kernel.h"

struct Tile {
    float DEVICE_GM *data;
    uint64_t rows, columns, row_stride, column_stride;
};

DEVICE_FN Tile tile_at(const device_task DEVICE_GM *task, uint32_t i) {
    const device_tensor DEVICE_GM *tensor = device_tensor_at(task, i);
    Tile tile = {(float DEVICE_GM *)tensor->data, tensor->shape[0], tensor->shape[1],
                 tensor->strides[0], tensor->strides[1]};
    return tile;
}

DEVICE_FN float DEVICE_GM *tile_element(const Tile *tile, uint64_t row, uint64_t column) {
    return tile->data + row * tile->row_stride + column * tile->column_stride;
}

#endif
