#include "core/data/reader.h"
