package deploy

// StagingFolder returns the name of the folder in which the agent of a sandbox stages its changelog: 32 hexadecimal digits that nobody
// guesses, the same ones at every call. They are derived as the tokens are, so that a later process finds them again and no document holds
// them. The errors are those of Tokens.For. It is safe for concurrent use.
func (d *Deployer) StagingFolder(sandboxID string) (string, error) {
	// No sandbox has a NUL in its id, so that no token is given away with it.
	name, err := d.o.Tokens.For("changelog\x00" + sandboxID)
	if err != nil {
		return "", err
	}
	return name[:32], nil
}
