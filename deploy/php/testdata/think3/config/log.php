<?php

return ['default' => 'file', 'channels' => ['file' => ['type' => 'File', 'path' => '', 'realtime_write' => true, 'single' => 'app']]];
