<?php

return ['think\\queue\\Service'];
