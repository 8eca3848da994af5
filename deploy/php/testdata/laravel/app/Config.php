<?php

namespace App;

// Settings by their whole names.
class Config extends \ArrayObject
{
    public function get($name, $default = null)
    {
        return $this[$name] ?? $default;
    }

    #[\ReturnTypeWillChange]
    public function offsetGet($name)
    {
        return $this->offsetExists($name) ? parent::offsetGet($name) : null;
    }
}
