// Program spillway is Spillway with one sink more.
package main

import (
	"example.com/plugin/beanstalk"

	"github.com/spillway-io/spillway/cmd/spillway/app"
)

func main() {
	app.Main(app.SinkType{Form: "beanstalk://host:port", Schemes: []string{"beanstalk"}, Open: beanstalk.New})
}
