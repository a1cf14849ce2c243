#include "core/data/dataset.h"
