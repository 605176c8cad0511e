// c = a b, or c += a b, for one tile of each.
#include "tile.h"

DEVICE_KERNEL(multiply) {
    Tile a = tile_at(task, 0), b = tile_at(task, 1), c = tile_at(task, 2);
    bool accumulate = device_scalar_bits(task, 0) != 0;
    for (uint64_t row = 0; row < c.rows; row++) {
        for (uint64_t column = 0; column < c.columns; column++) {
            float sum = accumulate ? *tile_element(&c, row, column) : 0.0f;
            for (uint64_t k = 0; k < a.columns; k++)
                sum += *tile_element(&a, row, k) * *tile_element(&b, k, column);
            *tile_element(&c, row, column) = sum;
        }
    }
    DEVICE_RETURN(0);
}
