#include "core/data/loader.h"
