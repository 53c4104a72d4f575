package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
)

// Reads the compose file as `docker compose` does, with and without the passwords that it asks for.
func judgeCompose(file string) error {
	load := func(environment types.Mapping) (*types.Project, error) {
		return loader.LoadWithContext(context.Background(), types.ConfigDetails{
			WorkingDir:  filepath.Dir(file),
			ConfigFiles: []types.ConfigFile{{Filename: file}},
			Environment: environment,
		})
	}
	if _, err := load(types.Mapping{}); err == nil {
		return fmt.Errorf("needs no password")
	}
	project, err := load(types.Mapping{"TIDEGATE_PASSWORD": "secret", "GRAFANA_PASSWORD": "secret"})
	if err != nil {
		return err
	}
	server, err := project.GetService("tidegate")
	if err != nil {
		return err
	}
	if len(server.Command) == 0 || server.Command[0] != "--requirepass" || server.Command[1] != "secret" {
		return fmt.Errorf("the server is started without its password: %v", server.Command)
	}
	for _, service := range project.Services {
		for _, port := range service.Ports {
			if port.HostIP != "127.0.0.1" {
				return fmt.Errorf("%s can be reached from other machines", service.Name)
			}
		}
	}
	return nil
}
